#include "trainer/data/npy_header.h"

#include <charconv>
#include <optional>

namespace muster {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Reads the few forms of Python literals that NumPy writes into a header.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : rest_(text) {}

  // Whether `token` comes next; it is consumed then.
  bool Take(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  // 'text' or "text", without escapes.
  std::optional<std::string> Text() {
    SkipSpace();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<bool> Boolean() {
    if (Take("True")) return true;
    if (Take("False")) return false;
    return std::nullopt;
  }

  // (3, 4), (3,) or ().
  std::optional<std::vector<std::int64_t>> Tuple() {
    if (!Take("(")) return std::nullopt;
    std::vector<std::int64_t> numbers;
    while (!Take(")")) {
      SkipSpace();
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
      if (error != std::errc()) return std::nullopt;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      numbers.push_back(number);
      if (!Take(",")) {
        if (!Take(")")) return std::nullopt;
        break;
      }
    }
    return numbers;
  }

 private:
  void SkipSpace() {
    const std::size_t first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
  }

  std::string_view rest_;
};

Status Malformed(std::string_view what) {
  return InvalidArgument("has a .npy header " + std::string(what));
}

Status ParseDictionary(std::string_view text, NpyHeader* header) {
  LiteralReader reader(text);
  bool has_order = false;
  bool has_shape = false;
  if (!reader.Take("{")) return Malformed("that is no dictionary");
  while (!reader.Take("}")) {
    const auto key = reader.Text();
    if (!key || !reader.Take(":")) return Malformed("that is no dictionary");
    if (*key == "descr") {
      const auto descr = reader.Text();
      if (!descr) return Malformed("of records; an array of integers is needed");
      header->descr = *descr;
    } else if (*key == "fortran_order") {
      const auto order = reader.Boolean();
      if (!order) return Malformed("whose fortran_order is neither True nor False");
      header->fortran_order = *order;
      has_order = true;
    } else if (*key == "shape") {
      auto shape = reader.Tuple();
      if (!shape) return Malformed("whose shape is no tuple of numbers");
      header->shape = *std::move(shape);
      has_shape = true;
    } else {
      return Malformed("with the unknown key '" + *key + "'");
    }
    if (!reader.Take(",")) {
      if (!reader.Take("}")) return Malformed("that is no dictionary");
      break;
    }
  }
  if (header->descr.empty() || !has_order || !has_shape)
    return Malformed("without descr, fortran_order or shape");
  return OkStatus();
}

}  // namespace

Result<NpyHeader> ParseNpyHeader(std::string_view start) {
  if (!start.starts_with(kMagic)) return InvalidArgument("is no .npy file: it has another magic");
  if (start.size() < 12) return DataLoss("ends within its .npy header");
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(start[at]));
  };
  const std::size_t major = byte(6);
  if (major < 1 || major > 3)
    return Unimplemented("is of .npy format version " + std::to_string(major) + "." +
                         std::to_string(byte(7)) + "; versions 1.0 to 3.0 are read");
  const std::size_t begin = major == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxNpyHeaderBytes - begin)
    return Malformed("of " + std::to_string(length) + " bytes, which is none of a plain array");
  if (start.size() < begin + length) return DataLoss("ends within its .npy header");
  NpyHeader header;
  header.data_begin = static_cast<std::int64_t>(begin + length);
  MUSTER_RETURN_IF_ERROR(ParseDictionary(start.substr(begin, length), &header));
  return header;
}

}  // namespace muster
