#include "trainer/tokenizer/bpe.h"

#include <queue>

#include "trainer/tokenizer/byte_alphabet.h"

namespace muster {
namespace {

constexpr std::size_t kMaxCached = 1 << 16;
constexpr std::size_t kMaxCachedBytes = 128;  // of one pre-token

std::uint64_t PairKey(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

// A token of the pre-token being merged, in a doubly linked list by index.
struct Symbol {
  std::int32_t id;
  std::int32_t previous;
  std::int32_t next;  // -1: none
  bool alive;
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

Result<Bpe> Bpe::Create(TokenMap vocab,
                        const std::vector<std::pair<std::string, std::string>>& merges,
                        BpeOptions options) {
  Bpe bpe;
  bpe.vocab_ = std::move(vocab);
  bpe.options_ = options;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto it = bpe.vocab_.find(ByteAlphabet()[byte]);
    bpe.byte_ids_[byte] = it == bpe.vocab_.end() ? -1 : it->second;
  }
  bpe.merges_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    std::int32_t ids[3];
    const std::string names[3] = {left, right, left + right};
    for (int i = 0; i < 3; ++i) {
      const auto it = bpe.vocab_.find(names[i]);
      if (it == bpe.vocab_.end())
        return InvalidArgument("merge " + std::to_string(rank + 1) + " (" + left + " " + right +
                               ") needs the token " + names[i] +
                               ", which is not in the vocabulary");
      ids[i] = it->second;
    }
    bpe.merges_.insert_or_assign(PairKey(ids[0], ids[1]), Merge{rank++, ids[2]});
  }
  return bpe;
}

const Bpe::Merge* Bpe::FindMerge(std::int32_t left, std::int32_t right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

std::vector<std::int32_t> Bpe::InitialIds(std::string_view bytes) const {
  std::vector<std::int32_t> ids;
  ids.reserve(bytes.size());
  bool after_unknown = false;
  for (const char byte : bytes) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0)
      ids.push_back(id);
    else if (options_.unknown_id && !(options_.fuse_unknown && after_unknown))
      ids.push_back(*options_.unknown_id);
    after_unknown = id < 0;
  }
  return ids;
}

std::vector<std::int32_t> Bpe::MergeBytes(std::string_view bytes) const {
  const std::vector<std::int32_t> initial = InitialIds(bytes);
  const auto size = static_cast<std::int32_t>(initial.size());
  std::vector<Symbol> symbols;
  symbols.reserve(initial.size());
  for (std::int32_t i = 0; i < size; ++i)
    symbols.push_back(
        {initial[static_cast<std::size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1, true});
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    if (const Merge* merge = FindMerge(at(left).id, at(at(left).next).id))
      queue.push({merge->rank, left, merge->id});
  };
  for (std::int32_t i = 0; i < size; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.position);
    if (!left.alive || left.next < 0) continue;
    // A neighbour may have been merged since: then another candidate stands for the pair.
    const Merge* merge = FindMerge(left.id, at(left.next).id);
    if (merge == nullptr || merge->id != best.id) continue;
    Symbol& right = at(left.next);
    left.id = merge->id;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) at(left.next).previous = best.position;
    consider(left.previous);
    consider(best.position);
  }

  std::vector<std::int32_t> ids;
  for (std::int32_t i = size > 0 ? 0 : -1; i >= 0; i = at(i).next) ids.push_back(at(i).id);
  return ids;
}

void Bpe::Encode(std::string_view bytes, std::vector<std::int32_t>* out) {
  if (const auto it = cache_.find(bytes); it != cache_.end()) {
    out->insert(out->end(), it->second.begin(), it->second.end());
    return;
  }
  std::vector<std::int32_t> ids;
  const auto whole = options_.ignore_merges ? vocab_.find(SpellBytes(bytes)) : vocab_.end();
  if (whole != vocab_.end())
    ids.push_back(whole->second);
  else
    ids = MergeBytes(bytes);
  out->insert(out->end(), ids.begin(), ids.end());
  if (bytes.size() <= kMaxCachedBytes && cache_.size() < kMaxCached)
    cache_.emplace(std::string(bytes), std::move(ids));
}

}  // namespace muster
