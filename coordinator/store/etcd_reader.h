// EtcdReader: reads of a store in etcd, a page at a time and all at one revision.
//
// A value on the stack of its user; the client outlives it; one thread. Reads are linearizable.
// kOutOfRange: the revision was compacted meanwhile, and the reads begin anew with another reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"

namespace muster {

class EtcdReader {
 public:
  static constexpr std::int64_t kMaxPageKeys = 1000;
  static constexpr std::size_t kMaxPageBytes = 4 << 20;  // at which pages aim
  using Each = std::function<Status(EtcdEntry entry)>;

  explicit EtcdReader(EtcdClient& client) : client_(client) {}

  // The entries of [first, end) in their order. Stops at the first failure of `each`.
  Status Read(const std::string& first, const std::string& end, const Each& each);
  // Nothing: there is no such key.
  Result<std::optional<std::string>> Get(const std::string& key);
  // Numbered keys (EtcdKeys::Numbered) of a folder, from `first` on.
  struct Numbers {
    std::uint64_t first = 0;  // 0: there is none
    std::uint64_t last = 0;   // where none is missing between; not above the last
  };
  Result<Numbers> NumbersFrom(const EtcdKeys& keys, const std::string& folder, std::uint64_t first);

  // That of the first read, and so of all; 0: there was none.
  std::int64_t revision() const { return revision_; }

 private:
  Result<etcdserverpb::RangeResponse> Page(etcdserverpb::RangeRequest request);
  static bool Advance(const etcdserverpb::RangeResponse& page, const std::string& end,
                      etcdserverpb::RangeRequest* request);

  EtcdClient& client_;
  std::int64_t revision_ = 0;
  std::int64_t limit_ = 128;  // keys of the next page
};

}  // namespace muster
