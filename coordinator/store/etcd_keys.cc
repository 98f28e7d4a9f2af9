#include "coordinator/store/etcd_keys.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "coordinator/store/etcd_client.h"
#include "coordinator/store/journal_format.h"

namespace muster {

namespace pb = etcdserverpb;

namespace {

// Begins the head of a divided value; no record begins so.
constexpr char kDivided = '\x01';
// Sorts a part before all other keys that begin with the head's.
constexpr char kPart = '\0';
constexpr std::size_t kOperationBytes = 32;

// A name as one part of a key.
std::string Escaped(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && c != '/' && c != '%') {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

void AppendPut(const std::string& key, const std::string& value, std::vector<pb::RequestOp>* out) {
  const bool divided = value.size() > kMaxEtcdValueBytes || value.starts_with(kDivided);
  if (!divided) return out->push_back(EtcdPut(key, value));
  const std::size_t parts = (value.size() + kMaxEtcdValueBytes - 1) / kMaxEtcdValueBytes;
  out->push_back(EtcdPut(key, kDivided + std::to_string(parts)));
  for (std::size_t i = 0; i < parts; ++i)
    out->push_back(EtcdPut(key + kPart + NumberedName(i),
                           value.substr(i * kMaxEtcdValueBytes, kMaxEtcdValueBytes)));
}

}  // namespace

EtcdKeys::EtcdKeys(std::string prefix) : prefix_(std::move(prefix)) {
  if (!prefix_.ends_with('/')) prefix_ += '/';
}

std::string EtcdKeys::Numbered(std::string_view folder, std::uint64_t number) const {
  return Under(folder) + NumberedName(number);
}

std::string EtcdKeys::Named(std::string_view folder, std::string_view name) const {
  return Under(folder) + Escaped(name);
}

std::string EtcdKeys::Secret(const SecretName& name) const {
  return Named("secrets/", name.owner) + "/" + Escaped(name.queue) + "/" + Escaped(name.name);
}

std::string EtcdKeys::QueueDay(const std::string& queue, std::int64_t day) const {
  return Named("queue-days/", queue) + "/" + std::to_string(day);
}

std::vector<std::string> EtcdNames(std::string_view below_prefix) {
  std::vector<std::string> names(1);
  for (std::size_t at = 0; at < below_prefix.size(); ++at) {
    unsigned byte = static_cast<unsigned char>(below_prefix[at]);
    if (byte == '/') {
      names.emplace_back();
      continue;
    }
    if (byte == '%' && at + 2 < below_prefix.size()) {
      std::from_chars(below_prefix.data() + at + 1, below_prefix.data() + at + 3, byte, 16);
      at += 2;
    }
    names.back() += static_cast<char>(byte);
  }
  return names;
}

std::string EtcdPartsEnd(const std::string& key) { return key + std::string(1, kPart + 1); }

std::string EtcdKeyBeyond(const std::string& first, const std::string& last, int times) {
  const auto differs = std::mismatch(first.begin(), first.end(), last.begin(), last.end()).second;
  const auto shared = static_cast<std::size_t>(differs - last.begin());
  // Seven bytes, so that the sum below fits.
  const auto number = [shared](const std::string& key) {
    std::uint64_t value = 0;
    for (std::size_t i = shared; i < shared + 7; ++i)
      value = value << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0);
    return value;
  };
  constexpr std::uint64_t kMax = (std::uint64_t{1} << 56) - 1;
  const std::uint64_t way = std::min((number(last) - number(first)), kMax / 256);
  std::uint64_t beyond = number(last) + static_cast<std::uint64_t>(times) * way + 1;
  beyond = std::min(beyond, kMax);
  std::string key = last.substr(0, shared);
  for (int shift = 48; shift >= 0; shift -= 8) key += static_cast<char>(beyond >> shift & 0xff);
  return key;
}

std::string AttemptKey(const std::string& job, Generation generation) {
  return job + "attempts/" + NumberedName(static_cast<std::uint64_t>(generation));
}

std::string CheckpointKey(const std::string& job, const std::string& directory) {
  return job + "checkpoints/" + Escaped(directory);
}

std::vector<pb::RequestOp> EtcdOperations(const EtcdChanges& changes) {
  std::vector<pb::RequestOp> operations;
  operations.reserve(changes.size());
  for (const auto& [key, value] : changes) {
    if (value) {
      AppendPut(key, *value, &operations);
    } else {
      operations.push_back(EtcdDelete(key, EtcdPartsEnd(key)));
    }
  }
  return operations;
}

std::size_t EtcdCost(const pb::RequestOp& operation) {
  if (operation.has_request_put())
    return operation.request_put().key().size() + operation.request_put().value().size() +
           kOperationBytes;
  return operation.request_delete_range().key().size() +
         operation.request_delete_range().range_end().size() + kOperationBytes;
}

Result<std::optional<EtcdEntry>> EtcdAssembler::Add(const pb::KeyValue& next) {
  const bool part = entry_ && next.key().size() > entry_->key.size() &&
                    next.key().starts_with(entry_->key) && next.key()[entry_->key.size()] == kPart;
  if (part) {
    if (missing_ == 0) return std::optional<EtcdEntry>();
    --missing_;
    entry_->value += next.value();
    return std::optional<EtcdEntry>();
  }
  MUSTER_ASSIGN_OR_RETURN(std::optional<EtcdEntry> before, Finish());
  entry_ = EtcdEntry{next.key(), next.value()};
  if (next.value().starts_with(kDivided)) {
    std::from_chars(next.value().data() + 1, next.value().data() + next.value().size(), missing_);
    entry_->value.clear();
  }
  return before;
}

Result<std::optional<EtcdEntry>> EtcdAssembler::Finish() {
  if (missing_ > 0)
    return DataLoss(entry_->key + ": " + std::to_string(missing_) +
                    " parts of its value are missing");
  return std::exchange(entry_, std::nullopt);
}

}  // namespace muster
