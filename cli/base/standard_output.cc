#include "cli/base/standard_output.h"

#include <cerrno>
#include <system_error>

namespace muster {

StandardOutput::StandardOutput(std::ostream& stream) : stream_(stream), to_(stream.rdbuf()) {
  stream_.rdbuf(this);
}

std::string StandardOutput::Finish() {
  stream_.flush();
  if (stream_) return "";
  const std::string why = error_ == 0 ? "" : ": " + std::generic_category().message(error_);
  return "could not write the output" + why;
}

StandardOutput::int_type StandardOutput::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const int_type put = to_->sputc(traits_type::to_char_type(c));
  if (traits_type::eq_int_type(put, traits_type::eof())) KeepError();
  return put;
}

std::streamsize StandardOutput::xsputn(const char* text, std::streamsize size) {
  const std::streamsize written = to_->sputn(text, size);
  if (written != size) KeepError();
  return written;
}

int StandardOutput::sync() {
  const int done = to_->pubsync();
  if (done != 0) KeepError();
  return done;
}

void StandardOutput::KeepError() {
  if (error_ == 0) error_ = errno;
}

}  // namespace muster
