"""The C++ code by which a header checks a built model against its golden cases. Text only.

It reads `golden/index.tsv` and NumPy files with the standard library alone (docs/how-to/take-it-along.md has the
formats), and compares in float64.
"""

INCLUDES = """\
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
"""

READING = r"""
namespace convkit {

// A tensor's values, row by row, little-endian.
struct Values {
  ElementType type;
  std::vector<std::int64_t> shape;
  std::vector<unsigned char> bytes;
};

using ValuesByName = std::map<std::string, Values>;

namespace detail {

// A NumPy file: "f4" for 32-bit floats, and so on.
struct NumpyArray {
  std::string kind;
  std::vector<std::int64_t> shape;
  std::vector<unsigned char> bytes;
};

inline std::string header_part(const std::string& path, const std::string& header, const char* start, char end) {
  const std::size_t place = header.find(start);
  const std::size_t first = place + std::strlen(start);
  const std::size_t last = place == std::string::npos ? place : header.find(end, first);
  if (last == std::string::npos) throw std::runtime_error(path + ": its header has no " + start);
  return header.substr(first, last - first);
}

// Puts the elements of an array that is stored column by column into the order of rows.
inline void order_by_rows(NumpyArray& array, std::size_t size) {
  std::vector<unsigned char> ordered(array.bytes.size());
  std::vector<std::int64_t> index(array.shape.size(), 0);
  for (std::size_t place = 0; place * size < ordered.size(); ++place) {
    std::size_t from = 0;
    for (std::size_t axis = index.size(); axis-- > 0;) {
      from = from * static_cast<std::size_t>(array.shape[axis]) + static_cast<std::size_t>(index[axis]);
    }
    std::memcpy(&ordered[place * size], &array.bytes[from * size], size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < array.shape[axis]) break;
      index[axis] = 0;
    }
  }
  array.bytes.swap(ordered);
}

inline NumpyArray read_numpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char start[8] = {};
  file.read(start, sizeof start);
  if (!file || std::memcmp(start, "\x93NUMPY", 6) != 0) throw std::runtime_error(path + ": not a NumPy file");
  const std::streamsize length = start[6] == 1 ? 2 : 4;
  unsigned char digits[4] = {};
  file.read(reinterpret_cast<char*>(digits), length);
  const std::size_t size = digits[0] | std::size_t{digits[1]} << 8 | std::size_t{digits[2]} << 16;
  std::string header(size, ' ');
  file.read(&header[0], static_cast<std::streamsize>(size));
  if (!file) throw std::runtime_error(path + ": cut off");
  const std::string type = header_part(path, header, "'descr': '", '\'');
  if (type.size() < 3 || type[0] == '>') throw std::runtime_error(path + ": element type " + type);
  NumpyArray array{type.substr(1), {}, {}};
  std::stringstream sizes(header_part(path, header, "'shape': (", ')'));
  std::size_t bytes = static_cast<std::size_t>(std::atoi(type.c_str() + 2));
  const std::size_t each = bytes;
  for (std::string text; std::getline(sizes, text, ',');) {
    if (text.find_first_of("0123456789") == std::string::npos) continue;
    array.shape.push_back(std::atoll(text.c_str()));
    bytes *= static_cast<std::size_t>(array.shape.back());
  }
  array.bytes.assign(std::istreambuf_iterator<char>(file), {});
  if (array.bytes.size() != bytes) throw std::runtime_error(path + ": cut off");
  if (header.find("'fortran_order': True") != std::string::npos) order_by_rows(array, each);
  return array;
}

// NumPy's name of an element type; bfloat16 is stored as its bits. Empty if it has none.
inline std::string numpy_kind(ElementType type) {
  switch (type) {
    case ElementType::float32: return "f4";
    case ElementType::float64: return "f8";
    case ElementType::float16: return "f2";
    case ElementType::bfloat16: return "u2";
    case ElementType::int8: return "i1";
    case ElementType::int16: return "i2";
    case ElementType::int32: return "i4";
    case ElementType::int64: return "i8";
    case ElementType::uint8: return "u1";
    case ElementType::uint16: return "u2";
    case ElementType::uint32: return "u4";
    case ElementType::uint64: return "u8";
    case ElementType::boolean: return "b1";
    default: return "";
  }
}

template <typename T>
double number_at(const unsigned char* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return static_cast<double>(value);
}

inline double half_at(const unsigned char* place) {
  const unsigned bits = place[0] | unsigned{place[1]} << 8;
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  }
  return bits >> 15 != 0 ? -value : value;
}

inline double bfloat_at(const unsigned char* place) {
  const unsigned char wide[4] = {0, 0, place[0], place[1]};
  return number_at<float>(wide);
}

inline std::vector<double> numbers(const std::vector<unsigned char>& bytes, const std::string& kind, bool bfloat) {
  double (*read)(const unsigned char*) = nullptr;
  if (kind == "f4") read = number_at<float>;
  if (kind == "f8") read = number_at<double>;
  if (kind == "f2") read = half_at;
  if (kind == "i1") read = number_at<std::int8_t>;
  if (kind == "i2") read = number_at<std::int16_t>;
  if (kind == "i4") read = number_at<std::int32_t>;
  if (kind == "i8") read = number_at<std::int64_t>;
  if (kind == "u1" || kind == "b1") read = number_at<std::uint8_t>;
  if (kind == "u2") read = bfloat ? bfloat_at : number_at<std::uint16_t>;
  if (kind == "u4") read = number_at<std::uint32_t>;
  if (kind == "u8") read = number_at<std::uint64_t>;
  if (read == nullptr) throw std::runtime_error("element type " + kind + " cannot be compared");
  const std::size_t size = static_cast<std::size_t>(kind[1] - '0');
  std::vector<double> found;
  for (std::size_t place = 0; place + size <= bytes.size(); place += size) found.push_back(read(&bytes[place]));
  return found;
}

inline std::string in_digits(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

// Every figure that a limit can be set on (docs/verification.md defines them), over all elements.
inline double figure(const std::string& name, const std::vector<double>& wanted, const std::vector<double>& found,
                     double rtol) {
  double largest = name == "atol" ? -std::numeric_limits<double>::infinity() : 0.0;
  double total = 0, squares = 0, products = 0, own = 0, others = 0;
  std::size_t equal = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::isinf(wanted[i])) {  // both are the same infinity
      ++equal;
      continue;
    }
    double error = std::abs(found[i] - wanted[i]);
    error = error < static_cast<double>(std::numeric_limits<float>::min()) ? 0.0 : error;
    const double magnitude = std::abs(wanted[i]);
    double share = error;
    if (name == "max_rel") share = error == 0.0 ? 0.0 : error / magnitude;
    if (name == "atol") share = error - rtol * magnitude;
    largest = std::max(largest, share);
    total += error;
    squares += error * error;
    products += wanted[i] * found[i];
    own += wanted[i] * wanted[i];
    others += found[i] * found[i];
    equal += error == 0.0 ? 1 : 0;
  }
  const double count = static_cast<double>(wanted.size());
  if (name == "mean_abs") return total / count;
  if (name == "rms") return std::sqrt(squares / count);
  if (name == "nrmse") return squares == 0.0 ? 0.0 : std::sqrt(squares / own);
  if (name == "agreement") return static_cast<double>(equal) / count;
  if (name == "cosine") {
    if (squares == 0.0) return 1.0;
    return own == 0.0 || others == 0.0 ? 0.0 : products / (std::sqrt(own) * std::sqrt(others));
  }
  if (name == "max_abs" || name == "max_rel" || name == "atol") return largest;
  throw std::runtime_error("limit " + name + " is not known; take the header of the model's own run");
}

struct GoldenOutput {
  std::string name, file;
  std::vector<std::pair<std::string, double>> limits;
};

inline std::string differences(const GoldenOutput& golden, const NumpyArray& expected, const Values& values) {
  const std::size_t place = find(outputs::names, golden.name);
  if (place == outputs::count) return "the bindings have no such output";
  const ElementType declared = outputs::tensors[place].type;
  if (values.type != declared) {
    return "its element type is " + std::to_string(static_cast<int>(values.type)) + ", not " +
           std::to_string(static_cast<int>(declared));
  }
  if (values.shape != expected.shape) return "its shape is different";
  const bool bfloat = declared == ElementType::bfloat16;
  const std::vector<double> wanted = numbers(expected.bytes, expected.kind, bfloat);
  const std::vector<double> found = numbers(values.bytes, numpy_kind(declared), bfloat);
  if (wanted.empty() || wanted.size() != found.size()) return "there is nothing to compare";
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(found[i]) || std::isnan(wanted[i])) return "element " + std::to_string(i) + " is NaN";
    if ((std::isinf(found[i]) || std::isinf(wanted[i])) && found[i] != wanted[i]) {
      return "element " + std::to_string(i) + " is " + in_digits(found[i]) + ", not " + in_digits(wanted[i]);
    }
  }
  std::string problems;
  double rtol = 0.0;
  bool limited = false;
  for (const auto& [name, limit] : golden.limits) {
    if (name == "rtol") {
      rtol = limit;
      continue;
    }
    limited = true;
    const double measured = figure(name, wanted, found, rtol);
    const bool larger_is_better = name == "cosine" || name == "agreement";
    if (!(larger_is_better ? measured >= limit : measured <= limit)) {
      problems += (problems.empty() ? "" : ", ") + name + " " + in_digits(measured) +
                  (larger_is_better ? " < " : " > ") + in_digits(limit);
    }
  }
  return limited ? problems : "it has no limit";
}

}  // namespace detail

// Runs the model on every golden case and compares its outputs with the original's. Returns what differs, in words; an
// empty text if the model computes what was verified. `run` takes the inputs by name (ValuesByName) and returns the
// outputs by name; `folder` is `golden`, beside this header. Throws std::runtime_error if the cases cannot be read.
template <typename Run>
std::string self_check(const std::string& folder, Run&& run) {
  std::ifstream index(folder + "/index.tsv");
  std::string line, name, problems;
  if (!std::getline(index, line) || line != "convkit-golden\t1") {
    throw std::runtime_error(folder + "/index.tsv: missing, or of another release of convkit");
  }
  ValuesByName feeds;
  std::vector<detail::GoldenOutput> wanted;
  std::size_t compared = 0;
  const auto finish = [&] {
    if (name.empty()) return;
    try {
      const ValuesByName found = run(feeds);
      for (const auto& golden : wanted) {
        const auto place = found.find(golden.name);
        const std::string difference =
            place == found.end() ? "the model did not return it"
                                 : detail::differences(golden, detail::read_numpy(folder + "/" + golden.file), place->second);
        ++compared;
        if (!difference.empty()) problems += "case " + name + ", output " + golden.name + ": " + difference + "\n";
      }
    } catch (const std::exception& error) {
      problems += "case " + name + ": " + error.what() + "\n";
    }
    feeds.clear();
    wanted.clear();
  };
  while (std::getline(index, line)) {
    std::vector<std::string> parts;
    std::stringstream row(line);
    for (std::string part; std::getline(row, part, '\t');) parts.push_back(part);
    if (parts.size() == 2 && parts[0] == "case") {
      finish();
      name = parts[1];
    } else if (parts.size() == 3 && parts[0] == "input") {
      const std::size_t place = find(inputs::names, parts[1]);
      if (place == inputs::count) throw std::runtime_error("the bindings have no input " + parts[1]);
      detail::NumpyArray array = detail::read_numpy(folder + "/" + parts[2]);
      const ElementType type = inputs::tensors[place].type;
      if (array.kind != detail::numpy_kind(type)) throw std::runtime_error(parts[2] + ": element type " + array.kind);
      feeds[parts[1]] = Values{type, std::move(array.shape), std::move(array.bytes)};
    } else if (parts.size() == 3 && parts[0] == "output") {
      wanted.push_back({parts[1], parts[2], {}});
    } else if (parts.size() == 3 && parts[0] == "limit" && !wanted.empty()) {
      wanted.back().limits.emplace_back(parts[1], std::strtod(parts[2].c_str(), nullptr));
    } else if (!line.empty() && line[0] != '#') {
      throw std::runtime_error(folder + "/index.tsv: not understood: " + line);
    }
  }
  finish();
  return compared == 0 && problems.empty() ? "nothing was compared\n" : problems;
}

}  // namespace convkit
"""
