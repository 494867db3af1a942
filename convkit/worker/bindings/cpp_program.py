"""The C++ program that a header becomes with `CONVKIT_SELF_CHECK` defined. Text only.

It runs `model.onnx` on its golden cases by onnxruntime's C API, whose functions keep their places from
release to release.
"""

PROGRAM = r"""
// A program that checks `model.onnx` with onnxruntime's C API:
//   g++ -std=c++17 -DCONVKIT_SELF_CHECK -x c++ bindings.hpp -I $ORT/include -L $ORT/lib -lonnxruntime -o self-check
//   ./self-check --self-check [FOLDER]
#ifdef CONVKIT_SELF_CHECK
#include <onnxruntime_c_api.h>

#include <filesystem>
#include <iostream>

namespace convkit::detail {

class OnnxModel {
 public:
  explicit OnnxModel(const std::filesystem::path& file) : api_(OrtGetApiBase()->GetApi(ORT_API_VERSION)) {
    if (api_ == nullptr) throw std::runtime_error("this library is older than its headers");
    check(api_->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "convkit", &environment_));
    check(api_->CreateSessionOptions(&options_));
    check(api_->CreateSession(environment_, file.c_str(), options_, &session_));
    check(api_->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory_));
  }
  OnnxModel(const OnnxModel&) = delete;
  OnnxModel& operator=(const OnnxModel&) = delete;
  ~OnnxModel() {
    if (memory_ != nullptr) api_->ReleaseMemoryInfo(memory_);
    if (session_ != nullptr) api_->ReleaseSession(session_);
    if (options_ != nullptr) api_->ReleaseSessionOptions(options_);
    if (environment_ != nullptr) api_->ReleaseEnv(environment_);
  }

  ValuesByName operator()(ValuesByName& feeds) const {
    std::vector<OrtValue*> given(inputs::count, nullptr), found(outputs::count, nullptr);
    ValuesByName results;
    try {
      for (std::size_t i = 0; i < inputs::count; ++i) {
        Values& values = feeds.at(inputs::names[i]);
        check(api_->CreateTensorWithDataAsOrtValue(memory_, values.bytes.data(), values.bytes.size(), values.shape.data(),
                                                   values.shape.size(),
                                                   static_cast<ONNXTensorElementDataType>(values.type), &given[i]));
      }
      check(api_->Run(session_, nullptr, inputs::names.data(), given.data(), inputs::count, outputs::names.data(),
                      outputs::count, found.data()));
      for (std::size_t i = 0; i < outputs::count; ++i) results[outputs::names[i]] = copied(found[i]);
    } catch (...) {
      release(given, found);
      throw;
    }
    release(given, found);
    return results;
  }

 private:
  void check(OrtStatus* status) const {
    if (status == nullptr) return;
    const std::string message = api_->GetErrorMessage(status);
    api_->ReleaseStatus(status);
    throw std::runtime_error(message);
  }

  Values copied(OrtValue* value) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api_->GetTensorTypeAndShape(value, &info));
    ONNXTensorElementDataType type;
    std::size_t rank = 0, elements = 0;
    check(api_->GetTensorElementType(info, &type));
    check(api_->GetDimensionsCount(info, &rank));
    check(api_->GetTensorShapeElementCount(info, &elements));
    Values values{static_cast<ElementType>(type), std::vector<std::int64_t>(rank), {}};
    check(api_->GetDimensions(info, values.shape.data(), rank));
    api_->ReleaseTensorTypeAndShapeInfo(info);
    const std::string kind = numpy_kind(values.type);
    if (kind.empty()) return values;
    void* data = nullptr;
    check(api_->GetTensorMutableData(value, &data));
    const auto* first = static_cast<const unsigned char*>(data);
    values.bytes.assign(first, first + elements * static_cast<std::size_t>(kind[1] - '0'));
    return values;
  }

  void release(const std::vector<OrtValue*>& given, const std::vector<OrtValue*>& found) const {
    for (OrtValue* value : given) if (value != nullptr) api_->ReleaseValue(value);
    for (OrtValue* value : found) if (value != nullptr) api_->ReleaseValue(value);
  }

  const OrtApi* api_;
  OrtEnv* environment_ = nullptr;
  OrtSessionOptions* options_ = nullptr;
  OrtSession* session_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
};

}  // namespace convkit::detail

int main(int count, char** arguments) {
  if (count < 2 || std::string_view(arguments[1]) != "--self-check") {
    std::cerr << "usage: " << arguments[0] << " --self-check [FOLDER OF THE MODEL]\n";
    return 2;
  }
  const std::filesystem::path folder = count > 2 ? arguments[2] : ".";
  try {
    const convkit::detail::OnnxModel model(folder / "model.onnx");
    const std::string problems = convkit::self_check((folder / "golden").string(), model);
    if (!problems.empty()) {
      std::cerr << problems << "self-check: FAILED\n";
      return 1;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\nself-check: FAILED\n";
    return 1;
  }
  std::cout << "self-check: passed\n";
  return 0;
}
#endif
"""
