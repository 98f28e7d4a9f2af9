#include "trainer/data/packed_dataset.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <xxhash.h>

#include "common/base/check.h"
#include "trainer/data/shuffle.h"

namespace muster {

PackedDataset::PackedDataset(std::unique_ptr<const Dataset> documents, std::int64_t length,
                             BatchOrder order)
    : inner_(std::move(documents)), length_(length), stats_(inner_->stats()) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(inner_->size()));
  std::iota(all.begin(), all.end(), 0);
  if (order.shuffle) Shuffle(ShuffleSeed(order.seed, kPackingStream), &all);
  order_.reserve(all.size());
  for (std::span<const std::int32_t> left = all; !left.empty();) {
    const auto count = std::min(left.size(), static_cast<std::size_t>(kPackingWindow));
    PackWindow(left.first(count));
    left = left.subspan(count);
  }
  stats_.documents = stats_.rows;
  stats_.rows = size();
  const std::uint64_t parts[] = {inner_->Fingerprint(), static_cast<std::uint64_t>(length_),
                                 XXH3_64bits(order_.data(), std::span(order_).size_bytes()),
                                 XXH3_64bits(begins_.data(), std::span(begins_).size_bytes())};
  fingerprint_ = XXH3_64bits(parts, sizeof parts);
}

void PackedDataset::PackWindow(std::span<const std::int32_t> window) {
  // Of places in the window.
  const auto length_at = [&](std::int32_t place) {
    return inner_->Length(window[static_cast<std::size_t>(place)]);
  };
  std::vector<std::int32_t> longest_first(window.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](auto a, auto b) { return length_at(a) > length_at(b); });
  std::vector<std::vector<std::int32_t>> packs;
  // Packs that are not full, by the room that they have left.
  std::map<std::int64_t, std::vector<std::size_t>> by_room;
  for (const std::int32_t place : longest_first) {
    const std::int64_t length = length_at(place);
    MUSTER_CHECK(length <= length_, "a document that is longer than a pack");
    std::int64_t room = length_;
    std::size_t pack = packs.size();
    if (const auto fit = by_room.lower_bound(length); fit != by_room.end()) {
      room = fit->first;
      pack = fit->second.back();
      fit->second.pop_back();
      if (fit->second.empty()) by_room.erase(fit);
    } else {
      packs.emplace_back();
    }
    packs[pack].push_back(place);
    if (room > length) by_room[room - length].push_back(pack);
  }
  // Back into the window's order, which the lengths have nothing to do with.
  for (std::vector<std::int32_t>& pack : packs) std::sort(pack.begin(), pack.end());
  std::sort(packs.begin(), packs.end());
  for (const std::vector<std::int32_t>& pack : packs) {
    for (const std::int32_t place : pack) order_.push_back(window[static_cast<std::size_t>(place)]);
    begins_.push_back(static_cast<std::int32_t>(order_.size()));
  }
}

std::span<const std::int32_t> PackedDataset::Pack(std::int64_t row) const {
  const auto begin = static_cast<std::size_t>(begins_[static_cast<std::size_t>(row)]);
  const auto end = static_cast<std::size_t>(begins_[static_cast<std::size_t>(row) + 1]);
  return std::span(order_).subspan(begin, end - begin);
}

std::int64_t PackedDataset::Length(std::int64_t row) const {
  std::int64_t length = 0;
  for (const std::int32_t document : Pack(row)) length += inner_->Length(document);
  return length;
}

std::int64_t PackedDataset::LabelCount(std::int64_t row) const {
  std::int64_t count = 0;
  for (const std::int32_t document : Pack(row)) count += inner_->LabelCount(document);
  return count;
}

Status PackedDataset::Read(std::int64_t row, std::span<std::int64_t> ids,
                           std::span<std::int64_t> labels) const {
  for (const std::int32_t document : Pack(row)) {
    const auto length = static_cast<std::size_t>(inner_->Length(document));
    MUSTER_RETURN_IF_ERROR(inner_->Read(document, ids.first(length), labels.first(length)));
    ids = ids.subspan(length);
    labels = labels.subspan(length);
  }
  return OkStatus();
}

std::vector<std::int64_t> PackedDataset::Documents(std::int64_t row) const {
  std::vector<std::int64_t> lengths;
  for (const std::int32_t document : Pack(row)) lengths.push_back(inner_->Length(document));
  return lengths;
}

std::string PackedDataset::Describe(std::span<const std::int64_t> rows) const {
  std::vector<std::int64_t> documents;
  for (const std::int64_t row : rows) {
    const auto pack = Pack(row);
    documents.insert(documents.end(), pack.begin(), pack.end());
  }
  return inner_->Describe(documents);
}

}  // namespace muster
