#include "coordinator/page/log_text.h"

#include "common/base/json.h"

namespace muster {
namespace {

// Bytes at the end that are the beginning of a character.
std::size_t UnfinishedBytes(const std::string& text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string LogText(LogBytes bytes, bool from_tail) {
  const std::int64_t begin = bytes.next_offset - static_cast<std::int64_t>(bytes.data.size());
  // A log that no longer grows shows all that it has.
  const bool complete = bytes.final && bytes.at_end;
  if (const std::size_t unfinished = complete ? 0 : UnfinishedBytes(bytes.data); unfinished > 0) {
    bytes.data.resize(bytes.data.size() - unfinished);
    bytes.next_offset -= static_cast<std::int64_t>(unfinished);
  }
  if (from_tail && begin > 0) {
    const std::size_t line = bytes.data.find('\n');
    if (line != std::string::npos) bytes.data.erase(0, line + 1);
  }
  return nlohmann::json({{"text", bytes.data},
                         {"next_offset", bytes.next_offset},
                         {"at_end", bytes.at_end},
                         {"final", bytes.final},
                         {"path", bytes.path}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace muster
