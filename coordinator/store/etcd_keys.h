// The keys of a store in etcd, and values that are too large for one key. docs/store-format.md has
// the layout.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/domain/records.h"
#include "etcd/etcd.pb.h"

namespace muster {

// Keys and what they are to be; nothing: they are deleted.
using EtcdChanges = std::map<std::string, std::optional<std::string>>;

// A value longer than this is divided: the head says into how many parts, and they have the keys
// that follow the head's. Parts beyond that number are left from a longer value.
inline constexpr std::size_t kMaxEtcdValueBytes = 512 << 10;

class EtcdKeys {
 public:
  // All keys begin with `prefix`, which gets a slash at its end if it has none.
  explicit EtcdKeys(std::string prefix);

  const std::string& prefix() const { return prefix_; }
  std::string Under(std::string_view name) const { return prefix_ + std::string(name); }
  // Sixteen digits, so that they are in order.
  std::string Numbered(std::string_view folder, std::uint64_t number) const;
  std::string Named(std::string_view folder, std::string_view name) const;

  std::string OfJob(const JobId& job) const { return Named("jobs/", job.value) + "/"; }
  std::string Secret(const SecretName& name) const;
  std::string QueueDay(const std::string& queue, std::int64_t day) const;

 private:
  std::string prefix_;
};

// The names that a key below the prefix is made of: {"secrets", OWNER, QUEUE, NAME}.
std::vector<std::string> EtcdNames(std::string_view below_prefix);

// Below OfJob.
std::string AttemptKey(const std::string& job, Generation generation);
std::string CheckpointKey(const std::string& job, const std::string& directory);

// The end of the range of a key and of the parts of its value, which are before all other keys that
// begin with it.
std::string EtcdPartsEnd(const std::string& key);

// As far behind `last` as `times` the way from `first` to it, by the bytes that they do not share.
std::string EtcdKeyBeyond(const std::string& first, const std::string& last, int times);

// The operations that make the changes, a part of a value each.
std::vector<etcdserverpb::RequestOp> EtcdOperations(const EtcdChanges& changes);
// Bytes that an operation takes in a request, not fewer.
std::size_t EtcdCost(const etcdserverpb::RequestOp& operation);

// A key with its whole value.
struct EtcdEntry {
  std::string key;
  std::string value;
};

// Makes entries out of keys in their order.
class EtcdAssembler {
 public:
  // The entry before, once its last part was there.
  Result<std::optional<EtcdEntry>> Add(const etcdserverpb::KeyValue& next);
  // After the last key.
  Result<std::optional<EtcdEntry>> Finish();

 private:
  std::optional<EtcdEntry> entry_;
  std::size_t missing_ = 0;  // parts of it
};

}  // namespace muster
