#include "coordinator/store/etcd_defragmenter.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace muster {
namespace {

constexpr Duration kStatusAnswer = std::chrono::seconds(2);
constexpr Duration kDefragmentAnswer = std::chrono::minutes(2);

std::string Mebibytes(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::optional<std::string> MemberToDefragment(const std::vector<EtcdClient::MemberStatus>& members,
                                              std::int64_t least_bytes) {
  const auto due = [least_bytes](const EtcdClient::MemberStatus& each) {
    return each.file_bytes >= least_bytes &&
           each.file_bytes - each.used_bytes > each.file_bytes / 4;
  };
  for (const bool leads : {false, true})
    for (const EtcdClient::MemberStatus& each : members)
      if (each.leads == leads && due(each)) return each.address;
  return std::nullopt;
}

EtcdDefragmenter::EtcdDefragmenter(EtcdDefragmenterOptions options,
                                   std::unique_ptr<EtcdClient> client)
    : options_(std::move(options)), client_(std::move(client)) {}

Result<std::unique_ptr<EtcdDefragmenter>> EtcdDefragmenter::Start(EtcdDefragmenterOptions options) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(options.access, kEtcdAnswer));
  std::unique_ptr<EtcdDefragmenter> started(
      new EtcdDefragmenter(std::move(options), std::move(client)));
  started->thread_ = std::thread([&self = *started] { self.Run(); });
  return started;
}

EtcdDefragmenter::~EtcdDefragmenter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_changed_.notify_all();
  client_->Cancel();
  if (thread_.joinable()) thread_.join();
}

// The first look is a period away: by then a defragmentation that an earlier leader began is over.
void EtcdDefragmenter::Run() {
  ::pthread_setname_np(::pthread_self(), "etcd defrag");
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, options_.interval, [this] { return stopping_; })) {
    lock.unlock();
    const Status status = DefragmentOne();
    lock.lock();
    if (stopping_) return;
    if (!status.ok()) options_.note("a member was not defragmented: " + status.message());
    if (status.code() == StatusCode::kPermissionDenied) return;
  }
}

// While a member is away, another one may not be: the others would be no majority.
Status EtcdDefragmenter::DefragmentOne() {
  const auto members = client_->Members(kStatusAnswer);
  if (!members.ok() || members->size() < client_->member_count()) return OkStatus();
  const std::optional<std::string> address = MemberToDefragment(*members, options_.least_bytes);
  if (!address) return OkStatus();
  const auto member = std::ranges::find(*members, *address, &EtcdClient::MemberStatus::address);
  options_.note("defragments " + *address + ", whose file of " + Mebibytes(member->file_bytes) +
                " holds " + Mebibytes(member->used_bytes));
  return client_->Defragment(*address, kDefragmentAnswer);
}

}  // namespace muster
