#include "coordinator/store/etcd_reader.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <utility>

namespace muster {

namespace pb = etcdserverpb;

namespace {

constexpr int kPartPages = 16;

}  // namespace

// With fewer keys where they are too large together.
Result<pb::RangeResponse> EtcdReader::Page(pb::RangeRequest request) {
  for (;;) {
    request.set_limit(limit_);
    request.set_revision(revision_);
    Result<pb::RangeResponse> page = client_.Range(request, kEtcdAnswer);
    if (page.status().code() == StatusCode::kResourceExhausted && limit_ > 1) {
      limit_ = std::max<std::int64_t>(1, limit_ / 8);
      continue;
    }
    if (!page.ok()) return page;
    if (revision_ == 0) revision_ = page->header().revision();
    if (page->kvs_size() > 0) {
      const std::size_t each = page->ByteSizeLong() / static_cast<std::size_t>(page->kvs_size());
      limit_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(kMaxPageBytes / (each + 1)), 1,
                                        kMaxPageKeys);
    }
    return page;
  }
}

// The next page is under way while the entries of one are taken.
Status EtcdReader::Read(const std::string& first, const std::string& end, const Each& each) {
  EtcdAssembler assembler;
  pb::RangeRequest request;
  request.set_key(first);
  request.set_range_end(end);
  Result<pb::RangeResponse> page = Page(request);
  for (;;) {
    if (!page.ok()) return page.status();
    std::future<Result<pb::RangeResponse>> next;
    if (Advance(*page, end, &request))
      next = std::async(std::launch::async, [&] { return Page(request); });
    for (const pb::KeyValue& each_key : page->kvs()) {
      MUSTER_ASSIGN_OR_RETURN(auto entry, assembler.Add(each_key));
      if (entry) MUSTER_RETURN_IF_ERROR(each(*std::move(entry)));
    }
    if (!next.valid()) break;
    page = next.get();
  }
  MUSTER_ASSIGN_OR_RETURN(auto entry, assembler.Finish());
  return entry ? each(*std::move(entry)) : OkStatus();
}

// Etcd counts the keys of a range for each page of it. So a range of many pages is read in parts,
// and counted whole once for each of these.
bool EtcdReader::Advance(const pb::RangeResponse& page, const std::string& end,
                         pb::RangeRequest* request) {
  const bool is_part = request->range_end() != end;
  if (!page.more() || page.kvs_size() == 0) {
    if (!is_part) return false;
    request->set_key(request->range_end());
    request->set_range_end(end);
    return true;
  }
  const std::string& last = page.kvs(page.kvs_size() - 1).key();
  if (!is_part && page.count() > kPartPages * page.kvs_size())
    request->set_range_end(std::min(end, EtcdKeyBeyond(page.kvs(0).key(), last, kPartPages)));
  request->set_key(last + '\0');
  return true;
}

Result<std::optional<std::string>> EtcdReader::Get(const std::string& key) {
  std::optional<std::string> value;
  MUSTER_RETURN_IF_ERROR(Read(key, EtcdPartsEnd(key), [&](EtcdEntry entry) -> Status {
    value = std::move(entry.value);
    return OkStatus();
  }));
  return value;
}

// Without an order, which makes etcd read the whole range before it cuts the answer.
Result<EtcdReader::Numbers> EtcdReader::NumbersFrom(const EtcdKeys& keys, const std::string& folder,
                                                    std::uint64_t first) {
  pb::RangeRequest request;
  request.set_key(keys.Numbered(folder, first));
  request.set_range_end(EtcdPrefixEnd(keys.Under(folder)));
  request.set_limit(1);
  request.set_keys_only(true);
  request.set_revision(revision_);
  MUSTER_ASSIGN_OR_RETURN(const pb::RangeResponse page, client_.Range(request, kEtcdAnswer));
  if (revision_ == 0) revision_ = page.header().revision();
  if (page.kvs_size() == 0) return Numbers{};
  const std::string name = page.kvs(0).key().substr(keys.Under(folder).size());
  std::uint64_t found = 0;
  std::from_chars(name.data(), name.data() + name.size(), found);
  return Numbers{found, found + static_cast<std::uint64_t>(page.count()) - 1};
}

}  // namespace muster
