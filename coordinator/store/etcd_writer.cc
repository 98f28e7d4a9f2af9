#include "coordinator/store/etcd_writer.h"

#include <utility>

#include "coordinator/store/etcd_reader.h"

namespace muster {

namespace pb = etcdserverpb;

namespace {

constexpr char kStageFolder[] = "stage/";
constexpr char kStagedKey[] = "staged";  // its value: the folder of the stage
// Numbers of transactions of older leaders, of which one may still ask for its last.
constexpr std::uint64_t kKeptEpochs = 16;
constexpr Duration kAttempt = std::chrono::seconds(1);
constexpr Duration kRoomRetry = std::chrono::seconds(1);
// What a transaction has beside the changes: its number, what it compares, a stage's key.
constexpr std::size_t kOwnOperations = 1;
constexpr std::size_t kOwnBytes = 8 << 10;

struct Size {
  std::size_t operations = 0;
  std::size_t bytes = 0;

  void Add(const pb::RequestOp& operation) {
    ++operations;
    bytes += EtcdCost(operation);
  }
  bool Fits() const {
    return operations + kOwnOperations <= EtcdWriter::kMaxOperations &&
           bytes + kOwnBytes <= EtcdWriter::kMaxBytes;
  }
};

bool FitsOne(const std::vector<pb::RequestOp>& operations) {
  Size size;
  for (const pb::RequestOp& each : operations) size.Add(each);
  return size.Fits();
}

// The quota of the database is used up; until an operator makes room, etcd takes no change.
bool IsFull(const Status& status) {
  return status.code() == StatusCode::kResourceExhausted &&
         status.message().find("database space exceeded") != std::string::npos;
}

std::string TextOf(std::uint64_t number) { return std::to_string(number); }

const pb::KeyValue* FirstOf(const pb::TxnResponse& response, int index) {
  if (index >= response.responses_size()) return nullptr;
  const pb::RangeResponse& range = response.responses(index).response_range();
  return range.kvs_size() > 0 ? &range.kvs(0) : nullptr;
}

}  // namespace

bool EtcdWriter::Fits(const EtcdChanges& changes) {
  return changes.size() <= kMaxOperations && FitsOne(EtcdOperations(changes));
}

Status EtcdWriter::Write(const EtcdChanges& changes) {
  MUSTER_RETURN_IF_ERROR(Settle());
  std::vector<pb::RequestOp> operations = EtcdOperations(changes);
  if (operations.empty()) return OkStatus();
  if (FitsOne(operations)) return Transact(std::move(operations));
  return Stage(operations);
}

Status EtcdWriter::DeleteRange(const std::string& first, const std::string& end) {
  return Transact({EtcdDelete(first, end)});
}

Status EtcdWriter::Transact(Operations operations) {
  const std::string leader = keys_.Under(kEtcdLeaderKey);
  const std::string numbers = EtcdTransactionKey(keys_, leadership_.epoch());
  pb::TxnRequest request;
  *request.add_compare() = EtcdCreatedAt(leader, leadership_.revision());
  pb::Compare* before = request.add_compare();
  before->set_target(pb::Compare::VALUE);
  before->set_key(numbers);
  before->set_value(TextOf(number_));
  for (pb::RequestOp& each : operations) *request.add_success() = std::move(each);
  *request.add_success() = EtcdPut(numbers, TextOf(number_ + 1));
  bytes_ += request.ByteSizeLong();
  *request.add_failure() = EtcdGet(numbers);
  *request.add_failure() = EtcdGet(leader);
  for (;;) {
    const Result<pb::TxnResponse> response = client_.Transact(request, kAttempt);
    if (response.ok()) {
      SetRoom(true);
      if (!response->succeeded()) MUSTER_RETURN_IF_ERROR(Judge(*response, number_ + 1));
      ++number_;
      revision_ = response->header().revision();
      return OkStatus();
    }
    if (IsFull(response.status())) {
      MUSTER_RETURN_IF_ERROR(AwaitRoom(response.status()));
    } else if (!IsUnanswered(response.status())) {
      return response.status();
    }
    const Status leads = leadership_.Check();
    if (!leads.ok())
      return {leads.code(), leads.message() + " (no answer to the last change: " +
                                response.status().message() + ")"};
  }
}

void EtcdWriter::SetRoom(bool has_room) {
  if (has_room_.exchange(has_room) != has_room) on_room_();
}

Status EtcdWriter::AwaitRoom(const Status& refused) {
  SetRoom(false);
  std::unique_lock lock(stop_mutex_);
  const bool stops = stop_changed_.wait_for(lock, kRoomRetry, [this] { return stopping_; });
  return stops ? refused : OkStatus();
}

void EtcdWriter::StopWaiting() {
  {
    std::lock_guard lock(stop_mutex_);
    stopping_ = true;
  }
  stop_changed_.notify_all();
}

// The answer to a transaction that was not carried out this time.
Status EtcdWriter::Judge(const pb::TxnResponse& refused, std::uint64_t number) const {
  const pb::KeyValue* newest = FirstOf(refused, 0);
  const pb::KeyValue* leader = FirstOf(refused, 1);
  // Carried out by a request before, to which no answer came.
  if (newest != nullptr && newest->value() == TextOf(number)) return OkStatus();
  if (leader == nullptr) return Aborted("the leader key is gone: its lease has ended");
  if (leader->create_revision() == leadership_.revision())
    return DataLoss("another program has written " + keys_.prefix() +
                    "; give each cluster an "
                    "--etcd-prefix of its own");
  const Result<EpochClaim> claim = DecodeClaim(leader->value());
  return Aborted((claim.ok() ? claim->Text() : "another coordinator") + " leads now");
}

Status EtcdWriter::Stage(const Operations& operations) {
  const std::string stage =
      keys_.Numbered(kStageFolder, leadership_.epoch()) + "." + NumberedName(number_) + "/";
  pb::TxnRequest part;
  Size size;
  std::uint64_t parts = 0;
  const auto write = [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(
        Transact({EtcdPut(stage + NumberedName(parts++), part.SerializeAsString())}));
    part.Clear();
    size = {};
    return OkStatus();
  };
  for (const pb::RequestOp& each : operations) {
    Size with = size;
    with.Add(each);
    if (!with.Fits()) MUSTER_RETURN_IF_ERROR(write());
    size.Add(each);
    *part.add_success() = each;
  }
  MUSTER_RETURN_IF_ERROR(write());
  MUSTER_RETURN_IF_ERROR(Transact({EtcdPut(keys_.Under(kStagedKey), stage)}));
  staged_ = true;
  // From here on the changes are durable: a failure is the next call's.
  (void)Settle();
  return OkStatus();
}

Status EtcdWriter::Settle() {
  if (!staged_) return OkStatus();
  const std::string all = keys_.Under(kStageFolder);
  EtcdReader reader(client_);
  MUSTER_ASSIGN_OR_RETURN(const auto named, reader.Get(keys_.Under(kStagedKey)));
  if (named) {
    std::vector<std::string> parts;
    MUSTER_RETURN_IF_ERROR(
        reader.Read(*named, EtcdPrefixEnd(*named), [&parts](EtcdEntry entry) -> Status {
          parts.push_back(std::move(entry.value));
          return OkStatus();
        }));
    for (const std::string& part : parts) {
      pb::TxnRequest request;
      if (!request.ParseFromString(part)) return DataLoss(*named + " holds no operations");
      MUSTER_RETURN_IF_ERROR(Transact({request.success().begin(), request.success().end()}));
    }
  }
  MUSTER_RETURN_IF_ERROR(
      Transact({EtcdDelete(keys_.Under(kStagedKey)), EtcdDelete(all, EtcdPrefixEnd(all))}));
  staged_ = false;
  return OkStatus();
}

Status EtcdWriter::Recover() {
  staged_ = true;
  MUSTER_RETURN_IF_ERROR(Settle());
  if (leadership_.epoch() <= kKeptEpochs) return OkStatus();
  return DeleteRange(EtcdTransactionKey(keys_, 0),
                     EtcdTransactionKey(keys_, leadership_.epoch() - kKeptEpochs));
}

}  // namespace muster
