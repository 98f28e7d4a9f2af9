// Strong types for what is named or numbered across processes, and what a name may be.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace muster {

template <typename Tag>
struct StringId {
  std::string value;

  bool empty() const { return value.empty(); }
  friend auto operator<=>(const StringId&, const StringId&) = default;
  friend std::ostream& operator<<(std::ostream& out, const StringId& id) { return out << id.value; }
};

// A submitted job: ten lower-case hexadecimal digits, chosen by the coordinator.
using JobId = StringId<struct JobIdTag>;
// A node, by the name its worker was started with; unique in the cluster.
using NodeName = StringId<struct NodeNameTag>;

// The rule for names that people give to nodes, jobs and clusters, since they become parts of paths
// and labels.
inline constexpr std::size_t kMaxNameBytes = 63;
inline constexpr std::string_view kNameRule =
    "1 to 63 letters, digits, '-', '_' and '.', not beginning with '.'";
bool FollowsNameRule(std::string_view name);

// The most ranks that a node offers room for.
inline constexpr int kMaxSlots = 4096;

// One forming of a job's gang. Counts from 1, durable, never reused: the fencing token of every
// message and commit. 0 means "none yet".
using Generation = std::int64_t;

// An optimizer step: the number of finished steps. Step 0 is the untrained state.
using Step = std::int64_t;

}  // namespace muster

template <typename Tag>
struct std::hash<muster::StringId<Tag>> {
  std::size_t operator()(const muster::StringId<Tag>& id) const noexcept {
    return std::hash<std::string>{}(id.value);
  }
};
