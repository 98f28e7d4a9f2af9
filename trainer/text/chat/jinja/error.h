// Error: what is wrong with a template, or with what it is asked to render.
//
// The one exception of this folder: a template can fail in any expression, and a Result in each of
// them would hide what they compute. Thrown by everything here, caught by Template (template.h),
// which turns it into a Status; it never leaves the folder.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace muster::jinja {

class Error : public std::exception {
 public:
  explicit Error(std::string message, int line = 0) : message_(std::move(message)), line_(line) {}

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  // The line of the template, from 1; 0: not known where it was thrown.
  int line() const { return line_; }
  // The innermost place that knows its line says it.
  void AddLine(int line) {
    if (line_ == 0) line_ = line;
  }

 private:
  std::string message_;
  int line_;
};

[[noreturn]] inline void Fail(std::string message, int line = 0) {
  throw Error(std::move(message), line);
}

}  // namespace muster::jinja
