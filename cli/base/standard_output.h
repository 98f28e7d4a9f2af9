// StandardOutput: keeps why what std::cout wrote could not be written. A stream says only that it
// failed, and the reason is gone when the program looks at it.
//
// Passes on to the stream's buffer, which it puts back at its end. One per stream; one thread.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace muster {

class StandardOutput : public std::streambuf {
 public:
  explicit StandardOutput(std::ostream& stream);
  ~StandardOutput() override { stream_.rdbuf(to_); }
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Flushes. Empty: all was written; else what to report: "could not write the output: No space
  // left on device".
  std::string Finish();

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  void KeepError();

  std::ostream& stream_;
  std::streambuf* const to_;
  int error_ = 0;  // errno of the first failure
};

}  // namespace muster
