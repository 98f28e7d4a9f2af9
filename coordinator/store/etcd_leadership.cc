#include "coordinator/store/etcd_leadership.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/version_table.h"
#include "coordinator/store/leader_probe.h"

namespace muster {

namespace pb = etcdserverpb;

namespace {

constexpr char kEpochKey[] = "epoch";
constexpr char kFormatKey[] = "format";
// A watch is renewed after this, in case its member has forgotten it.
constexpr Duration kWatch = std::chrono::seconds(10);
constexpr Duration kRevoke = std::chrono::seconds(1);
constexpr Duration kRetry = std::chrono::milliseconds(100);
constexpr Duration kAnnounce = std::chrono::milliseconds(300);

std::int64_t BootNanos() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::uint64_t NumberOf(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string EtcdTransactionKey(const EtcdKeys& keys, std::uint64_t epoch) {
  return keys.Numbered("txn/", epoch);
}

struct EtcdLeadership::Found {
  std::int64_t revision = 0;
  pb::KeyValue leader, epoch, format;  // without a key: there is none
};

EtcdLeadership::EtcdLeadership(EtcdLeadershipOptions options, std::unique_ptr<EtcdClient> client)
    : options_(std::move(options)), client_(std::move(client)), claim_(options_.claim) {}

EtcdLeadership::~EtcdLeadership() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  client_->Cancel();
  if (!thread_.joinable()) return;
  thread_.join();
  // Another client, since this one is at its end. A lease that stays ends by itself.
  const auto client = EtcdClient::Open(options_.access, kRevoke);
  if (client.ok()) (void)(*client)->RevokeLease(lease_, kRevoke);
}

Result<std::unique_ptr<EtcdLeadership>> EtcdLeadership::Campaign(EtcdClient& client,
                                                                 EtcdLeadershipOptions options) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> own,
                          EtcdClient::Open(options.access, kEtcdAnswer));
  std::unique_ptr<EtcdLeadership> leadership(
      new EtcdLeadership(std::move(options), std::move(own)));
  bool unanswered = false;
  for (;;) {
    const Result<bool> leads = leadership->TryToLead(client);
    if (leads.ok()) {
      unanswered = false;
      if (*leads) break;
      continue;
    }
    const std::optional<EpochClaim>& other = leadership->other_;
    if (!other || !IsUnanswered(leads.status())) return leads.status();
    if (!std::exchange(unanswered, true))
      leadership->options_.note("does not answer, and is asked until it does: " +
                                leads.status().message());
    MUSTER_RETURN_IF_ERROR(leadership->options_.on_wait(&*other));
  }
  leadership->epoch_ = leadership->claim_.epoch;
  leadership->thread_ = std::thread([&self = *leadership] { self.KeepAlive(); });
  return leadership;
}

Result<bool> EtcdLeadership::TryToLead(EtcdClient& client) {
  MUSTER_ASSIGN_OR_RETURN(const Found found, Read(client));
  const pb::KeyValue& leader = found.leader;
  if (leader.key().empty()) {
    MUSTER_RETURN_IF_ERROR(options_.on_wait(nullptr));
    MUSTER_RETURN_IF_ERROR(Grant(client));
    return Take(client, found);
  }
  const Result<EpochClaim> claim = DecodeClaim(leader.value());
  if (lease_ != 0 && leader.lease() == lease_ && claim.ok()) {
    // By a request of which no answer came.
    claim_ = *claim;
    revision_ = leader.create_revision();
    return true;
  }
  other_ = claim.ok() ? *claim : EpochClaim{};
  MUSTER_RETURN_IF_ERROR(options_.on_wait(&*other_));
  AwaitEnd(client, found, *other_);
  return false;
}

Result<EtcdLeadership::Found> EtcdLeadership::Read(EtcdClient& client) const {
  const EtcdKeys& keys = options_.keys;
  pb::TxnRequest request;
  for (const char* name : {kEtcdLeaderKey, kEpochKey, kFormatKey})
    *request.add_success() = EtcdGet(keys.Under(name));
  MUSTER_ASSIGN_OR_RETURN(pb::TxnResponse response,
                          client.Transact(request, options_.answers_within));
  Found found;
  found.revision = response.header().revision();
  pb::KeyValue* into[] = {&found.leader, &found.epoch, &found.format};
  for (int i = 0; i < std::min(3, response.responses_size()); ++i) {
    pb::RangeResponse* range = response.mutable_responses(i)->mutable_response_range();
    if (range->kvs_size() > 0) *into[i] = std::move(*range->mutable_kvs(0));
  }
  if (const std::string format = std::to_string(kEtcdFormats.max);
      !found.format.key().empty() && found.format.value() != format)
    return FailedPrecondition("the store at " + keys.prefix() + " has format " +
                              found.format.value() + ", this version of Muster knows " + format +
                              "; start the version that wrote it, or use another --etcd-prefix");
  return found;
}

// One that was granted a while ago may have ended, with the key under it.
Status EtcdLeadership::Grant(EtcdClient& client) {
  const std::int64_t sent = BootNanos();
  const std::int64_t life = options_.lease_seconds * 1'000'000'000;
  if (lease_ != 0 && sent < valid_until_ns_ - life / 2) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(lease_,
                          client.GrantLease(options_.lease_seconds, options_.answers_within));
  valid_until_ns_ = sent + life;
  return OkStatus();
}

// False: another one was faster, or no answer came.
Result<bool> EtcdLeadership::Take(EtcdClient& client, const Found& found) {
  const EtcdKeys& keys = options_.keys;
  claim_.epoch = NumberOf(found.epoch.value()) + 1;
  pb::TxnRequest request;
  *request.add_compare() = EtcdCreatedAt(keys.Under(kEtcdLeaderKey), 0);
  pb::Compare* epoch = request.add_compare();
  epoch->set_target(pb::Compare::MOD);
  epoch->set_key(keys.Under(kEpochKey));
  epoch->set_mod_revision(found.epoch.mod_revision());
  *request.add_success() = EtcdPut(keys.Under(kEtcdLeaderKey), EncodeClaim(claim_), lease_);
  *request.add_success() = EtcdPut(keys.Under(kEpochKey), std::to_string(claim_.epoch));
  *request.add_success() = EtcdPut(keys.Under(kFormatKey), std::to_string(kEtcdFormats.max));
  *request.add_success() = EtcdPut(EtcdTransactionKey(keys, claim_.epoch), "0");
  const Result<pb::TxnResponse> response = client.Transact(request, options_.answers_within);
  if (!response.ok()) {
    if (response.status().code() == StatusCode::kNotFound || IsUnanswered(response.status())) {
      if (response.status().code() == StatusCode::kNotFound) lease_ = 0;  // it has ended
      return false;
    }
    return response.status();
  }
  revision_ = response->header().revision();
  return response->succeeded();
}

// Or a change of the key, or kWatch.
void EtcdLeadership::AwaitEnd(EtcdClient& client, const Found& found, const EpochClaim& leader) {
  const LeaderProbe probe(leader.address, [&] {
    options_.note("the process that leads, " + leader.Text() + ", has ended; ends its lease");
    // Members that elect a leader of their own answer late. The lease may end by itself meanwhile.
    (void)client_->RevokeLease(found.leader.lease(), kEtcdAnswer);
  });
  client.AwaitChange(found.leader.key(), found.revision, kWatch);
}

bool EtcdLeadership::IsConfirmed() const {
  return !lease_ended_ && !epoch_raised_ && BootNanos() < valid_until_ns_;
}

Status EtcdLeadership::Check() const {
  if (lease_ended_)
    return Aborted(
        "the lease of the leader key has ended, because this coordinator or etcd stood still for " +
        std::to_string(options_.lease_seconds) + " s");
  if (epoch_raised_)
    return Aborted("a node has served a coordinator of a higher epoch than " +
                   std::to_string(epoch_) + "; this one campaigns above it");
  const Duration unconfirmed = std::chrono::nanoseconds(BootNanos() - valid_until_ns_);
  if (unconfirmed >= options_.ends_unconfirmed)
    return Unavailable(
        "no member of etcd (" + client_->names() +
        ") has confirmed the lease of the leader key for " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(unconfirmed).count()) +
        " s after its end; start the coordinator again once they answer");
  return OkStatus();
}

void EtcdLeadership::Announce(std::string address, std::string page) {
  {
    std::lock_guard lock(mutex_);
    claim_.address = std::move(address);
    claim_.page = std::move(page);
    claim_.ready = true;
    announced_ = false;
    wake_ = true;
  }
  changed_.notify_all();
}

void EtcdLeadership::OnAnswer(std::function<void()> function) {
  std::lock_guard lock(mutex_);
  on_answer_ = std::move(function);
}

void EtcdLeadership::RaiseEpoch(std::uint64_t epoch) {
  {
    std::lock_guard lock(mutex_);
    raise_to_ = std::max(raise_to_, epoch);
    wake_ = true;
  }
  changed_.notify_all();
}

// False: there is nothing to raise, or no member has answered.
bool EtcdLeadership::WriteRaisedEpoch() {
  pb::TxnRequest request;
  {
    std::lock_guard lock(mutex_);
    if (raise_to_ == 0) return false;
    *request.add_success() = EtcdPut(options_.keys.Under(kEpochKey), std::to_string(raise_to_));
  }
  *request.add_compare() = EtcdCreatedAt(options_.keys.Under(kEtcdLeaderKey), revision_);
  // One that was refused finds another leader, which has the epoch to raise.
  return client_->Transact(request, kAnnounce).ok();
}

void EtcdLeadership::WriteAnnouncement() {
  pb::TxnRequest request;
  const std::string key = options_.keys.Under(kEtcdLeaderKey);
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(announced_, true)) return;
    *request.add_success() = EtcdPut(key, EncodeClaim(claim_), lease_);
  }
  *request.add_compare() = EtcdCreatedAt(key, revision_);
  if (client_->Transact(request, kAnnounce).ok()) return;
  std::lock_guard lock(mutex_);
  announced_ = false;  // again after the next keep-alive
}

void EtcdLeadership::KeepAlive() {
  ::pthread_setname_np(::pthread_self(), "etcd lease");
  const Duration interval = std::chrono::milliseconds(options_.lease_seconds * 1000 / 3);
  Duration wait = interval;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, wait, [this] { return stopping_ || wake_; });
      if (stopping_) return;
      wake_ = false;
    }
    const std::int64_t sent = BootNanos();
    const Result<Duration> left = client_->KeepAlive(lease_, interval);
    wait = left.ok() ? interval : kRetry;
    if (!left.ok()) continue;
    if (*left <= Duration::zero()) {
      lease_ended_ = true;
      return;
    }
    if (WriteRaisedEpoch()) {
      epoch_raised_ = true;
      return;
    }
    valid_until_ns_ = sent + std::chrono::duration_cast<std::chrono::nanoseconds>(*left).count();
    {
      std::lock_guard lock(mutex_);
      on_answer_();
    }
    WriteAnnouncement();
  }
}

}  // namespace muster
