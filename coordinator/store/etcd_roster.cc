#include "coordinator/store/etcd_roster.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace muster {

namespace pb = etcdserverpb;

namespace {

constexpr char kFolder[] = "coordinators/";
constexpr Duration kInterval = std::chrono::seconds(2);
constexpr Duration kRosterAnswer = std::chrono::seconds(2);
constexpr std::int64_t kRewriteMs = 10 * 60 * 1000;
constexpr std::int64_t kForgottenMs = 24 * 3600 * 1000;
constexpr std::int64_t kMaxEntries = 64;

struct Entry {
  CoordinatorPlace place;
  std::int64_t seen_ms = 0;
};

std::optional<Entry> EntryOf(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    return Entry{{.address = json.value("address", ""),
                  .page = json.value("page", ""),
                  .join = json.value("join", "")},
                 json.value("seen_ms", std::int64_t{0})};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // by a program that means something else by the key
  }
}

}  // namespace

EtcdRoster::EtcdRoster(std::unique_ptr<EtcdClient> client, std::string folder, std::string key)
    : client_(std::move(client)), folder_(std::move(folder)), key_(std::move(key)) {}

Result<std::unique_ptr<EtcdRoster>> EtcdRoster::Open(const EtcdAccess& access,
                                                     const std::string& prefix,
                                                     const std::string& name) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(access, kEtcdAnswer));
  const EtcdKeys keys(prefix);
  std::unique_ptr<EtcdRoster> roster(
      new EtcdRoster(std::move(client), keys.Under(kFolder), keys.Named(kFolder, name)));
  roster->thread_ = std::thread([&self = *roster] { self.Follow(); });
  return roster;
}

EtcdRoster::~EtcdRoster() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  client_->Cancel();
  if (thread_.joinable()) thread_.join();
}

void EtcdRoster::Announce(CoordinatorPlace own) {
  {
    const std::lock_guard lock(mutex_);
    if (is_announced_ && own == own_) return;
    own_ = std::move(own);
    is_announced_ = true;
    write_at_ms_ = 0;
  }
  changed_.notify_all();
}

std::vector<CoordinatorPlace> EtcdRoster::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<CoordinatorPlace> all = others_;
  if (is_announced_) all.insert(all.begin(), own_);
  return all;
}

void EtcdRoster::Follow() {
  ::pthread_setname_np(::pthread_self(), "etcd roster");
  for (;;) {
    const std::int64_t now_ms = SystemClock().UnixMillis();
    const bool is_written = Write(now_ms);
    Read(now_ms);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kInterval, [&] {
      return stopping_ || (is_written && is_announced_ && write_at_ms_ == 0);
    });
    if (stopping_) return;
  }
}

// False: etcd did not answer.
bool EtcdRoster::Write(std::int64_t now_ms) {
  nlohmann::json json;
  {
    const std::lock_guard lock(mutex_);
    if (!is_announced_ || now_ms < write_at_ms_) return true;
    json = {
        {"address", own_.address}, {"page", own_.page}, {"join", own_.join}, {"seen_ms", now_ms}};
    write_at_ms_ = now_ms + kRewriteMs;
  }
  pb::TxnRequest request;
  *request.add_success() = EtcdPut(key_, json.dump());
  if (client_->Transact(request, kRosterAnswer).ok()) return true;
  const std::lock_guard lock(mutex_);
  write_at_ms_ = 0;
  return false;
}

void EtcdRoster::Read(std::int64_t now_ms) {
  pb::RangeRequest range;
  range.set_key(folder_);
  range.set_range_end(EtcdPrefixEnd(folder_));
  range.set_limit(kMaxEntries);
  const auto found = client_->Range(range, kRosterAnswer);
  if (!found.ok()) return;
  std::vector<CoordinatorPlace> others;
  pb::TxnRequest forget;
  for (const pb::KeyValue& each : found->kvs()) {
    if (each.key() == key_) continue;
    const std::optional<Entry> entry = EntryOf(each.value());
    if (entry && now_ms - entry->seen_ms < kForgottenMs)
      others.push_back(entry->place);
    else
      *forget.add_success() = EtcdDelete(each.key());
  }
  if (forget.success_size() > 0) (void)client_->Transact(forget, kRosterAnswer);
  const std::lock_guard lock(mutex_);
  // One that was put at another's address has replaced it.
  std::erase_if(others, [this](const CoordinatorPlace& each) {
    return is_announced_ && !each.address.empty() && each.address == own_.address;
  });
  others_ = std::move(others);
}

}  // namespace muster
