#include "cli/jobs/node_reports.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include "cli/base/output.h"
#include "common/slurm/hostlist.h"

namespace muster {
namespace {

constexpr char kProblem[] = "problem: ";
constexpr char kAnyAddress[] = "ADDRESS";

struct Group {
  std::string line;   // as the first node says it
  std::string alike;  // without that node's address
  std::vector<std::string> nodes;

  bool is_problem() const { return line.starts_with(kProblem); }
};

bool IsHex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

// Whether an address continues with this: "2" and ".2", but not the end of a sentence.
bool GoesOn(std::string_view rest) {
  if (rest.starts_with('.') || rest.starts_with(':')) rest.remove_prefix(1);
  return !rest.empty() && IsHex(rest.front());
}

// Every address of the line that is this one, and not 10.0.0.1 within 10.0.0.12.
std::string WithoutAddress(std::string line, const std::string& address) {
  if (address.empty()) return line;
  for (std::size_t at = 0; (at = line.find(address, at)) != line.npos;) {
    const std::size_t end = at + address.size();
    const char before = at > 0 ? line[at - 1] : ' ';
    const bool whole = !IsHex(before) && before != '.' && before != ':' &&
                       !GoesOn(std::string_view(line).substr(end));
    if (whole) line.replace(at, address.size(), kAnyAddress);
    at += whole ? sizeof kAnyAddress - 1 : address.size();
  }
  return line;
}

// In the order of the lines' first appearance.
std::vector<Group> Groups(const v1::ListNodesResponse& nodes) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> known;
  const auto add = [&](const std::string& node, std::string line, std::string alike) {
    const auto [at, added] = known.emplace(alike, groups.size());
    if (added) groups.push_back({std::move(line), std::move(alike), {}});
    std::vector<std::string>& names = groups[at->second].nodes;
    if (names.empty() || names.back() != node) names.push_back(node);
  };
  for (const auto& node : nodes.nodes()) {
    for (const auto& line : node.report())
      add(node.name(), line, WithoutAddress(line, node.address()));
    const std::string nothing = "networks and devices are unknown";
    if (node.report().empty()) add(node.name(), nothing, nothing);
  }
  return groups;
}

}  // namespace

std::string NodeReportsText(const v1::ListNodesResponse& nodes) {
  std::vector<Group> groups = Groups(nodes);
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    if (a.is_problem() != b.is_problem()) return a.is_problem();
    return a.is_problem() && a.nodes.size() > b.nodes.size();
  });
  std::string text;
  for (const Group& group : groups) {
    const std::size_t count = group.nodes.size();
    text += Printable(count == 1 ? group.line : group.alike) + "\n  ";
    text += count == 1 ? "" : std::to_string(count) + " nodes: ";
    text += Printable(slurm::CompressHostlist(group.nodes)) + "\n";
  }
  return text;
}

}  // namespace muster
