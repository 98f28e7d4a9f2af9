#include "worker/fabric/node_place.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace muster::worker {
namespace {

constexpr std::size_t kMaxKeyBytes = 128;
constexpr std::size_t kMaxValueBytes = 255;
constexpr std::size_t kMaxLabels = 256;

bool HasOnly(std::string_view text, std::string_view marks) {
  return std::ranges::all_of(text, [&](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || marks.find(static_cast<char>(c)) != marks.npos;
  });
}

bool IsKey(std::string_view text) {
  return !text.empty() && text.size() <= kMaxKeyBytes && HasOnly(text, "-_./") &&
         HasOnly(text.substr(0, 1), "");
}

constexpr std::string_view kValueRule =
    "at most 255 letters, digits and any of '-', '_', '.', '/', ':', '@' and '+'";
bool IsValue(std::string_view text) {
  return text.size() <= kMaxValueBytes && HasOnly(text, "-_./:@+");
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream all{std::string(text)};
  for (std::string part; std::getline(all, part, separator);) parts.push_back(part);
  return parts;
}

}  // namespace

Result<std::map<std::string, std::string>> ParseLabels(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : texts) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string key = text.substr(0, equals);
    if (equals == text.size() || !IsKey(key))
      return InvalidArgument("label '" + text +
                             "': expected KEY=VALUE, such as pool=a; a key is 1 to 128 letters, "
                             "digits, '-', '_', '.' and '/', and begins with a letter or digit");
    const std::string value = text.substr(equals + 1);
    if (!IsValue(value))
      return InvalidArgument("label '" + text + "': a value is " + std::string(kValueRule));
    if (!labels.emplace(key, value).second)
      return InvalidArgument("label " + key + " is given twice");
  }
  if (labels.size() > kMaxLabels)
    return InvalidArgument("a node has at most " + std::to_string(kMaxLabels) + " labels");
  return labels;
}

Result<TopologyPath> ParseTopology(std::string_view text) {
  TopologyPath path;
  for (const std::string& part : Split(text, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string level = part.substr(0, equals);
    std::string* const out = level == "block"    ? &path.block
                             : level == "rack"   ? &path.rack
                             : level == "switch" ? &path.switch_name
                                                 : nullptr;
    const std::string name = part.substr(std::min(equals + 1, part.size()));
    if (out == nullptr || name.empty())
      return InvalidArgument("topology '" + std::string(text) +
                             "': expected block=B,rack=R,switch=S, or some of these");
    if (!IsValue(name))
      return InvalidArgument("topology '" + std::string(text) + "': a name is " +
                             std::string(kValueRule));
    if (!out->empty())
      return InvalidArgument("topology '" + std::string(text) + "': " + level + " is given twice");
    *out = name;
  }
  if (path == TopologyPath{})
    return InvalidArgument("topology '': expected block=B,rack=R,switch=S, or some of these");
  return path;
}

Result<TopologyPath> TopologyInFile(std::string_view text, const std::string& name,
                                    const std::string& node) {
  const std::vector<std::string> lines = Split(text, '\n');
  Result<TopologyPath> found = NotFound(name + ": has no line for node " + node +
                                        "; add one, such as: " + node + " rack=r1");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string place = name + ":" + std::to_string(i + 1);
    std::istringstream words(lines[i].substr(0, lines[i].find('#')));
    std::string of, topology, more;
    words >> of >> topology >> more;
    if (of.empty()) continue;
    if (topology.empty() || !more.empty())
      return InvalidArgument(place + ": expected NODE block=B,rack=R,switch=S");
    const Result<TopologyPath> path = ParseTopology(topology);
    if (!path.ok()) return path.status().WithContext(place);
    if (of != node) continue;
    if (found.ok()) return InvalidArgument(place + ": node " + node + " is there twice");
    found = path;
  }
  return found;
}

TopologyPath TopologyOfSlurm(std::string_view address, std::string_view pattern) {
  const std::vector<std::string> names = Split(address, '.');
  const std::vector<std::string> kinds = Split(pattern, '.');
  TopologyPath path;
  if (names.size() != kinds.size() || kinds.empty() || kinds.back() != "node") return path;
  // From the node up.
  for (std::size_t i = kinds.size() - 1; i-- > 0;) {
    if (!IsValue(names[i])) return {};
    std::string* const out = kinds[i] == "block"        ? &path.block
                             : kinds[i] != "switch"     ? nullptr
                             : path.switch_name.empty() ? &path.switch_name
                             : path.rack.empty()        ? &path.rack
                             : path.block.empty()       ? &path.block
                                                        : nullptr;
    if (out != nullptr && out->empty()) *out = names[i];
  }
  return path;
}

}  // namespace muster::worker
