#include "trainer/hub/fetch_display.h"

#include <algorithm>
#include <cstdio>

#include "common/base/byte_size.h"

namespace muster {
namespace {

constexpr Duration kBarEvery = std::chrono::milliseconds(200);
constexpr Duration kLineEvery = std::chrono::seconds(15);
constexpr int kBarWidth = 24;
constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

void FetchDisplay::Plan(std::size_t files, std::int64_t bytes, TimePoint now) {
  files_ = files;
  bytes_ = bytes;
  Refresh(now, /*must=*/true);
}

void FetchDisplay::Bytes(std::int64_t bytes, TimePoint now) {
  bytes_done_ += bytes;
  Refresh(now, /*must=*/false);
}

void FetchDisplay::File(const std::string& name, TimePoint now) {
  ++files_done_;
  if (is_terminal_) return Refresh(now, /*must=*/true);
  write_(name + " (" + std::to_string(files_done_) + " of " + std::to_string(files_) + " files)\n");
}

void FetchDisplay::Note(const std::string& note) {
  End();
  write_(note + "\n");
}

void FetchDisplay::End() {
  if (bar_) write_(kClearLine);
  bar_ = false;
}

std::string FetchDisplay::Line(TimePoint now) const {
  std::string line;
  if (bytes_ > 0 && is_terminal_) {
    const double share = static_cast<double>(bytes_done_) / static_cast<double>(bytes_);
    const int full = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
    line += "[" + std::string(static_cast<std::size_t>(full), '#') +
            std::string(static_cast<std::size_t>(kBarWidth - full), ' ') + "] ";
  }
  line += FormatByteSize(std::max<std::int64_t>(bytes_done_, 0));
  if (bytes_ > 0) line += " of " + FormatByteSize(bytes_);
  line += ", " + std::to_string(files_done_) + " of " + std::to_string(files_) + " files";
  const double seconds = ToSeconds(now - begun_);
  if (seconds >= 1 && bytes_done_ > 0) {
    const double rate = static_cast<double>(bytes_done_) / seconds;
    line += ", " + FormatByteSize(static_cast<std::int64_t>(rate)) + "/s";
  }
  return line;
}

void FetchDisplay::Refresh(TimePoint now, bool must) {
  if (!must && now - shown_ < (is_terminal_ ? kBarEvery : kLineEvery)) return;
  shown_ = now;
  if (!is_terminal_) return write_(Line(now) + "\n");
  write_(kClearLine + Line(now));
  bar_ = true;
}

}  // namespace muster
