#include "trainer/data/row_reader.h"

#include <string_view>
#include <utility>

#include "trainer/data/byte_source.h"

namespace muster {
namespace {

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

class LineReader : public RowReader {
 public:
  LineReader(std::string path, ByteSource source, std::size_t max_row_bytes)
      : path_(std::move(path)), source_(std::move(source)), max_row_bytes_(max_row_bytes) {}

  Result<bool> Next(RawRow* row) override {
    for (;;) {
      row->text.clear();
      const bool begun = source_.Line(max_row_bytes_, &row->text);
      row->line = line_ + 1;
      if (!source_.status().ok())
        return source_.status().WithContext(path_ + ":" + std::to_string(row->line));
      if (!begun) return false;
      ++line_;
      if (line_ == 1 && row->text.starts_with("\xef\xbb\xbf")) row->text.erase(0, 3);
      if (!IsBlank(row->text)) return true;
    }
  }

 private:
  std::string path_;
  ByteSource source_;
  std::size_t max_row_bytes_;
  std::int64_t line_ = 0;  // that were read
};

// Finds where the elements of an array begin and end, by brackets and quotes alone; whether they
// are JSON the parser of rows says.
class ElementReader : public RowReader {
 public:
  ElementReader(std::string path, ByteSource source, std::size_t max_row_bytes)
      : path_(std::move(path)), source_(std::move(source)), max_row_bytes_(max_row_bytes) {}

  Result<bool> Next(RawRow* row) override {
    int c = SkipBlanks();
    if (!begun_) {
      begun_ = true;
      in_array_ = c == '[';
      if (in_array_) c = SkipBlanks();
      first_ = true;
    }
    if (in_array_ && !ended_ && !first_ && c >= 0 && c != ']') {
      if (c != ',') return Wrong("there is no comma between this row and the one before");
      c = SkipBlanks();
    }
    if (in_array_ && !ended_ && c == ']') {
      ended_ = true;
      c = SkipBlanks();
    }
    if (c < 0) {
      MUSTER_RETURN_IF_ERROR(source_.status());
      if (in_array_ && !ended_) return Wrong("the array of rows does not end; it was cut off");
      return false;
    }
    if (ended_) return Wrong("something stands after the end of the array of rows");
    first_ = false;
    row->line = line_;
    row->text.assign(1, static_cast<char>(c));
    MUSTER_RETURN_IF_ERROR(c == '{' || c == '[' ? TakeBracketed(&row->text)
                                                : TakeScalar(&row->text));
    return true;
  }

 private:
  int Take() {
    if (held_ != kNone) return std::exchange(held_, kNone);
    const int c = source_.Next();
    // The row that ends with a line's end still counts to it.
    if (std::exchange(line_ended_, c == '\n')) ++line_;
    return c;
  }

  // The next byte that is neither blank nor of a byte order mark.
  int SkipBlanks() {
    for (;;) {
      const int c = Take();
      const bool mark = !begun_ && (c == 0xef || c == 0xbb || c == 0xbf);
      if (!mark && c != ' ' && c != '\t' && c != '\r' && c != '\n') return c;
    }
  }

  Status TakeBracketed(std::string* text) {
    const std::int64_t begin = line_;
    bool in_string = false;
    for (int depth = 1; depth > 0;) {
      const int c = Take();
      if (c < 0) {
        MUSTER_RETURN_IF_ERROR(source_.status());
        return InvalidArgument(path_ + ":" + std::to_string(begin) +
                               ": the row that begins here does not end; the file was cut off, or "
                               "a bracket or a quote is missing");
      }
      if (text->size() == max_row_bytes_)
        return InvalidArgument(
            path_ + ":" + std::to_string(begin) + ": the row that begins here is longer than " +
            std::to_string(max_row_bytes_) + " bytes; a .json file is an array of rows");
      text->push_back(static_cast<char>(c));
      if (in_string && c == '\\') {
        if (const int escaped = Take(); escaped >= 0) text->push_back(static_cast<char>(escaped));
      } else if (c == '"') {
        in_string = !in_string;
      } else if (!in_string && (c == '{' || c == '[')) {
        ++depth;
      } else if (!in_string && (c == '}' || c == ']')) {
        --depth;
      }
    }
    return OkStatus();
  }

  // What is no row; as much of it as a message shows.
  Status TakeScalar(std::string* text) {
    constexpr std::size_t kShown = 80;
    for (;;) {
      const int c = Take();
      if (c < 0) return source_.status();
      if (c == ',' || c == ']' || c == '\n') {
        held_ = c;
        return OkStatus();
      }
      if (text->size() < kShown) text->push_back(static_cast<char>(c));
    }
  }

  Status Wrong(const std::string& what) const {
    return InvalidArgument(path_ + ":" + std::to_string(line_) + ": " + what);
  }

  static constexpr int kNone = -2;

  std::string path_;
  ByteSource source_;
  std::size_t max_row_bytes_;
  std::int64_t line_ = 1;
  bool line_ended_ = false;
  bool begun_ = false;
  bool in_array_ = false;
  bool first_ = true;
  bool ended_ = false;
  int held_ = kNone;  // taken, and not used yet
};

}  // namespace

Result<std::unique_ptr<RowReader>> RowReader::Open(const std::string& path,
                                                   std::size_t max_row_bytes) {
  MUSTER_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path));
  std::unique_ptr<RowReader> reader;
  if (path.ends_with(".json") || path.ends_with(".json.gz")) {
    reader = std::make_unique<ElementReader>(path, std::move(source), max_row_bytes);
  } else {
    reader = std::make_unique<LineReader>(path, std::move(source), max_row_bytes);
  }
  return reader;
}

}  // namespace muster
