#include "trainer/text/tokenizer/merge_table.h"

#include <functional>
#include <queue>

namespace muster {
namespace {

std::uint64_t PairKey(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

constexpr std::int32_t kNone = -1;
constexpr std::int32_t kMerged = -1;  // the id of a symbol that is part of the one before it

// In a doubly linked list by index.
struct Symbol {
  std::int32_t id;
  std::int32_t previous;
  std::int32_t next;
};

struct Candidate {
  std::int32_t rank;
  std::int32_t position;  // of the left symbol
  std::int32_t id;        // that the merge makes

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

void MergeTable::Add(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id) {
  merges_.insert_or_assign(PairKey(left, right), Merge{rank, id});
}

const MergeTable::Merge* MergeTable::Find(std::int32_t left, std::int32_t right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

// The symbols of one piece, and which of them may be merged next.
class MergeTable::Pass {
 public:
  Pass(const MergeTable& table, const std::vector<std::int32_t>& ids) : table_(table) {
    const auto size = static_cast<std::int32_t>(ids.size());
    symbols_.reserve(ids.size());
    for (std::int32_t i = 0; i < size; ++i)
      symbols_.push_back(
          {ids[static_cast<std::size_t>(i)], i == 0 ? kNone : i - 1, i + 1 < size ? i + 1 : kNone});
    for (std::int32_t i = 0; i < size; ++i) Consider(i);
  }

  void Run() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const Symbol& left = At(best.position);
      if (left.id == kMerged || left.next == kNone) continue;
      // A neighbour may have been merged since: then another candidate stands for the pair.
      const Merge* merge = table_.Find(left.id, At(left.next).id);
      if (merge != nullptr && merge->id == best.id) Join(best.position, merge->id);
    }
  }

  std::vector<std::int32_t> Ids() const {
    std::vector<std::int32_t> ids;
    for (const Symbol& symbol : symbols_)
      if (symbol.id != kMerged) ids.push_back(symbol.id);
    return ids;
  }

 private:
  Symbol& At(std::int32_t i) { return symbols_[static_cast<std::size_t>(i)]; }

  void Consider(std::int32_t left) {
    if (left == kNone || At(left).next == kNone) return;
    if (const Merge* merge = table_.Find(At(left).id, At(At(left).next).id))
      queue_.push({merge->rank, left, merge->id});
  }

  void Join(std::int32_t position, std::int32_t id) {
    Symbol& left = At(position);
    Symbol& right = At(left.next);
    left.id = id;
    left.next = right.next;
    right.id = kMerged;
    if (left.next != kNone) At(left.next).previous = position;
    Consider(left.previous);
    Consider(position);
  }

  const MergeTable& table_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

void MergeTable::Apply(std::vector<std::int32_t>* ids) const {
  if (ids->size() < 2) return;
  Pass pass(*this, *ids);
  pass.Run();
  *ids = pass.Ids();
}

}  // namespace muster
