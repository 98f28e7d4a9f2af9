#include "coordinator/page/revised_parts.h"

#include <string_view>

#include "coordinator/page/page_json.h"

namespace muster {
namespace {

void Append(std::string& out, std::string_view between, const std::string& json) {
  if (out.back() != '[') out += between;
  out += json;
}

}  // namespace

void RevisedParts::Set(const std::string& key, std::string json) {
  Part& part = parts_[key];
  if (part.revision != 0 && part.json == json) return;
  part.json = std::move(json);
  part.revision = ++revision_;
}

void RevisedParts::Remove(const std::string& key) {
  if (parts_.erase(key) == 0) return;
  gone_.emplace_back(++revision_, key);
  if (gone_.size() <= kMaxGone) return;
  forgotten_ = gone_.front().first;
  gone_.pop_front();
}

std::string RevisedParts::Since(std::uint64_t revision, std::int64_t now_unix_ms) const {
  const bool whole = revision == 0 || revision < forgotten_;
  std::string out = "{\"now\":" + std::to_string(now_unix_ms) +
                    ",\"whole\":" + (whole ? "true" : "false") + ",\"set\":[";
  for (const auto& [key, part] : parts_) {
    if (!whole && part.revision <= revision) continue;
    Append(out, ",", "[" + JsonText(key) + "," + part.json + "]");
  }
  out += "],\"gone\":[";
  // A key that was set again since is not gone.
  for (const auto& [removed, key] : gone_) {
    if (!whole && removed > revision && !parts_.contains(key)) Append(out, ",", JsonText(key));
  }
  return out + "]}";
}

}  // namespace muster
