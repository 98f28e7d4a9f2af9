#include "common/base/hub_id.h"

#include <algorithm>

namespace muster {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// What the Hub takes for the name of an organisation or a repository.
bool IsName(std::string_view text) {
  const auto known = [](char c) { return IsWordCharacter(c) || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 96 && std::all_of(text.begin(), text.end(), known) &&
         IsWordCharacter(text.front()) && text.find("--") == std::string_view::npos &&
         text.find("..") == std::string_view::npos;
}

// A branch may have slashes; nothing of it may lead out of refs/.
bool IsRevision(std::string_view text) {
  const auto known = [](char c) {
    return IsWordCharacter(c) || c == '-' || c == '.' || c == '/' || c == '+';
  };
  return !text.empty() && text.size() <= 200 && std::all_of(text.begin(), text.end(), known) &&
         text.front() != '/' && text.back() != '/' && text.find("..") == std::string_view::npos &&
         text.find("//") == std::string_view::npos;
}

}  // namespace

std::optional<HubId> ParseHubId(std::string_view text) {
  HubId id;
  const std::size_t at = text.find('@');
  if (at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    text = text.substr(0, at);
  }
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || !IsName(text.substr(0, slash)) ||
      !IsName(text.substr(slash + 1)) || !IsRevision(id.revision)) {
    return std::nullopt;
  }
  id.repo = text;
  return id;
}

}  // namespace muster
