// The few functions of onnxruntime's C API that the bindings' program calls, at their places in OrtApi, so that it is
// compiled against the library of the wheel, which brings no headers. The order of OrtApi is an ABI that only grows.
#pragma once

#include <cstddef>
#include <cstdint>

#define ORT_API_VERSION 13

struct OrtEnv;
struct OrtStatus;
struct OrtSession;
struct OrtSessionOptions;
struct OrtMemoryInfo;
struct OrtValue;
struct OrtRunOptions;
struct OrtTensorTypeAndShapeInfo;

enum OrtLoggingLevel { ORT_LOGGING_LEVEL_WARNING = 2 };
enum OrtAllocatorType { OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };
enum ONNXTensorElementDataType : int {};

struct OrtApi {
  void* before_2[2];
  const char* (*GetErrorMessage)(const OrtStatus*);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel, const char*, OrtEnv**);
  void* before_7[3];
  OrtStatus* (*CreateSession)(const OrtEnv*, const char*, const OrtSessionOptions*, OrtSession**);
  void* before_9[1];
  OrtStatus* (*Run)(OrtSession*, const OrtRunOptions*, const char* const*, const OrtValue* const*, std::size_t,
                    const char* const*, std::size_t, OrtValue**);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions**);
  void* before_49[38];
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo*, void*, std::size_t, const std::int64_t*,
                                               std::size_t, ONNXTensorElementDataType, OrtValue**);
  void* before_51[1];
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  void* before_60[8];
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType*);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo*, std::size_t*);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo*, std::int64_t*, std::size_t);
  void* before_64[1];
  OrtStatus* (*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo*, std::size_t*);
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue*, OrtTensorTypeAndShapeInfo**);
  void* before_69[3];
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo**);
  void* before_92[22];
  void (*ReleaseEnv)(OrtEnv*);
  void (*ReleaseStatus)(OrtStatus*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseSession)(OrtSession*);
  void (*ReleaseValue)(OrtValue*);
  void* before_99[2];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo*);
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
};

static_assert(offsetof(OrtApi, Run) == 9 * sizeof(void*));
static_assert(offsetof(OrtApi, CreateTensorWithDataAsOrtValue) == 49 * sizeof(void*));
static_assert(offsetof(OrtApi, GetTensorTypeAndShape) == 65 * sizeof(void*));
static_assert(offsetof(OrtApi, CreateCpuMemoryInfo) == 69 * sizeof(void*));
static_assert(offsetof(OrtApi, ReleaseSessionOptions) == 100 * sizeof(void*));

struct OrtApiBase {
  const OrtApi* (*GetApi)(std::uint32_t);
  const char* (*GetVersionString)();
};

extern "C" const OrtApiBase* OrtGetApiBase();
