#include "cli/client/coordinator_link.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/base/exit_code.h"
#include "cli/client/local_coordinators.h"
#include "common/base/locked_record.h"
#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"

namespace muster {
namespace {

// A coordinator reads its store before it answers.
constexpr auto kStartTimeout = std::chrono::seconds(10);
constexpr auto kStartPoll = std::chrono::milliseconds(50);

}  // namespace

CoordinatorLink::CoordinatorLink(std::string dir, Interrupt& interrupt, RemoteCoordinator remote)
    : paths_{std::move(dir)},
      interrupt_(interrupt),
      is_local_(remote.address.empty() && remote.credentials_dir.empty()) {
  address_status_ = Use(std::move(remote));
  UseLocal();
}
CoordinatorLink::CoordinatorLink(std::string dir, Interrupt& interrupt, FindRemote find_remote)
    : paths_{std::move(dir)},
      interrupt_(interrupt),
      address_status_(Use({})),
      is_local_(false),
      find_remote_(std::move(find_remote)) {}

Status CoordinatorLink::CheckIsLocal() const {
  if (is_local_) return OkStatus();
  return InvalidArgument(
      "this command acts on a cluster of this machine; it does not accept --coordinator, --tls, or "
      "--slurm-job\n  next: unset MUSTER_COORDINATOR MUSTER_TLS MUSTER_SLURM_JOB");
}

Result<Endpoint> CoordinatorLink::FindEndpoint() const {
  if (!address_status_.ok()) return address_status_;
  auto endpoint = FindCoordinator(*addresses_, paths_.Endpoint());
  if (!endpoint.ok() && endpoint.status().code() == StatusCode::kNotFound)
    return NotFound("there is no cluster in " + paths_.dir);
  return endpoint;
}

// A coordinator that starts removes its predecessor's file, and writes its own once it answers.
Result<Endpoint> CoordinatorLink::AwaitEndpoint() {
  const std::string dir = ShellWord(paths_.dir);
  const Deadline deadline = Deadline::After(kStartTimeout);
  for (;;) {
    auto endpoint = FindEndpoint();
    if (endpoint.ok()) return endpoint;
    if (!remote_.address.empty()) return endpoint;
    if (endpoint.status().code() != StatusCode::kNotFound)
      return Status(endpoint.status().code(),
                    endpoint.status().message() + "\n  next: " + RestartCommand());
    if (!IsRecordLocked(paths_.CoordinatorPid())) break;
    if (deadline.Expired())
      return Unavailable("the coordinator in " + paths_.dir +
                         " does not answer yet\n  next: tail " +
                         ShellWord(paths_.CoordinatorLog()));
    if (interrupt_.WaitFor(kStartPoll)) return Cancelled("interrupted");
  }
  std::error_code error;
  if (std::filesystem::exists(paths_.Token(), error))
    return Unavailable("no coordinator runs in " + paths_.dir +
                       "; start it again, or select another with --dir or MUSTER_DIR\n  next: "
                       "muster up --dir " +
                       dir);
  return Unavailable("there is no cluster in " + paths_.dir +
                     "; start one, or select another with --dir or MUSTER_DIR\n  next: muster up "
                     "--nodes 2 --dir " +
                     dir);
}

std::string CoordinatorLink::RestartCommand() const {
  const std::string dir = ShellWord(paths_.dir);
  return "muster down --dir " + dir + " && muster up --dir " + dir;
}

Status CoordinatorLink::Use(RemoteCoordinator remote) {
  const bool is_known = addresses_ && remote.address == remote_.address;
  remote_ = std::move(remote);
  if (is_known) return address_status_;
  auto list = CoordinatorAddresses::Parse(remote_.address);
  addresses_ = std::make_unique<CoordinatorAddresses>(list.ok() ? *std::move(list)
                                                                : std::vector<std::string>{});
  return list.ok() ? OkStatus() : list.status().WithContext("--coordinator");
}

// Where there are several, chooses one that takes connections: a call that was sent is not made
// again elsewhere, since it may have been carried out. An election takes a while.
Status CoordinatorLink::Connect(const Deadline& until) {
  if (connection_) return OkStatus();
  for (std::size_t tried = 1;; ++tried) {
    MUSTER_RETURN_IF_ERROR(ConnectOnce());
    if (!addresses_->HasOthers() || until.Expired() ||
        TakesConnections(*connection_->coordinator.channel, kConnectLimit,
                         [this] { return interrupt_.requested(); }))
      return OkStatus();
    addresses_->Failed(connection_->coordinator.address, "");
    const bool is_round = tried % (addresses_->all().size() + 1) == 0;
    if (interrupt_.WaitFor(is_round ? kElectionPause : kFollowPause)) return OkStatus();
    Disconnect();
  }
}

// Before a login, which counts where there is no cluster in the directory.
void CoordinatorLink::UseLocal() {
  if (!is_local_) return;
  const auto local = ReadLocalCoordinators(paths_.dir);
  has_several_ = local.status().code() != StatusCode::kNotFound;
  if (local.ok())
    address_status_ = Use({local->Addresses(), paths_.Security().AdminCredentials()});
  else if (has_several_)
    address_status_ = local.status();
}

// Again for each connection: a coordinator moves, a login is renewed.
Status CoordinatorLink::FindCredentials() {
  std::error_code error;
  UseLocal();
  const bool by_login =
      !has_several_ && !find_remote_ && find_login_ &&
      (!remote_.address.empty() || !std::filesystem::exists(paths_.Token(), error));
  if (find_remote_ || by_login) {
    auto found = by_login ? find_login_() : find_remote_();
    if (found.ok()) address_status_ = Use(*std::move(found));
    const bool none = by_login && found.status().code() == StatusCode::kNotFound;
    if (!found.ok() && !none) return found.status();
  }
  return OkStatus();
}

Status CoordinatorLink::ConnectOnce() {
  MUSTER_RETURN_IF_ERROR(FindCredentials());
  const auto endpoint = AwaitEndpoint();
  if (!endpoint.ok()) return endpoint.status();
  auto coordinator = OpenCoordinator(*endpoint, remote_.credentials_dir, paths_.Token());
  const bool remote = !remote_.credentials_dir.empty() || !remote_.address.empty();
  if (!coordinator.ok() && remote) return coordinator.status();
  if (!coordinator.ok()) {
    const bool none = coordinator.status().code() == StatusCode::kNotFound;
    return {none ? StatusCode::kUnavailable : coordinator.status().code(),
            coordinator.status().message() + "\n  next: rm -f " + ShellWord(paths_.Token()) +
                " && " + RestartCommand()};
  }
  Stubs stubs{v1::Client::NewStub(coordinator->channel),
              v1::Secrets::NewStub(coordinator->channel)};
  connection_ = std::make_unique<Connection>(Connection{*std::move(coordinator), std::move(stubs)});
  return OkStatus();
}

void CoordinatorLink::Attach(grpc::ClientContext& context) const {
  AttachToken(context, connection_->coordinator);
  if (!as_user_.empty()) context.AddMetadata(kAsUserKey, as_user_);
}

Status CoordinatorLink::Reach(const Call& call) {
  const Deadline until = Deadline::After(call_limit_);
  for (;;) {
    MUSTER_RETURN_IF_ERROR(Connect(until));
    grpc::ClientContext context;
    Attach(context);
    context.set_deadline(SystemDeadline(until.Remaining()));
    grpc::Status status;
    {
      const Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
      status = call(connection_->stubs, context);
    }
    if (status.ok()) return OkStatus();
    const std::optional<StandbyAnswer> standby = StandbyAnswerOf(context);
    if (!standby) return Explain(FromGrpcStatus(status));
    if (Follow(*standby, until)) continue;
    if (interrupt_.requested()) return Cancelled("interrupted");
    return Unavailable(status.error_message());
  }
}

bool CoordinatorLink::Follow(const StandbyAnswer& standby, const Deadline& until) {
  // Other machines' addresses take credentials.
  const bool has_way =
      standby.none_leads || (!standby.leader.empty() && !remote_.credentials_dir.empty());
  if (!has_way || until.Expired()) return false;
  addresses_->Failed(connection_->coordinator.address, standby.leader);
  Disconnect();
  return !interrupt_.WaitFor(standby.none_leads ? kElectionPause : kFollowPause);
}

Status CoordinatorLink::Explain(const Status& status) const {
  if (status.ok()) return status;
  if (interrupt_.requested()) return Cancelled("interrupted");
  // A coordinator that stops cancels the calls that it has not answered.
  if (status.code() == StatusCode::kCancelled)
    return Unavailable("the coordinator at " + connection_->coordinator.address + " is stopping");
  std::string message = status.message();
  if (status.code() == StatusCode::kUnavailable)
    message = "the coordinator at " + connection_->coordinator.address + " does not answer (" +
              status.message() + "); it may have exited, or may be restarting";
  if (status.code() == StatusCode::kDeadlineExceeded)
    message = "the coordinator at " + connection_->coordinator.address + " did not answer in time";
  // NextCommand names commands for a cluster on this machine.
  const bool is_local = has_several_ || !connection_->coordinator.token.empty();
  if (const std::string next = NextCommand(status, paths_.dir); is_local && !next.empty())
    message += "\n  next: " + next;
  return {status.code(), message};
}

Result<std::vector<CoordinatorAnswer>> CoordinatorLink::AskCoordinators() {
  MUSTER_RETURN_IF_ERROR(FindCredentials());
  MUSTER_RETURN_IF_ERROR(address_status_);
  MUSTER_RETURN_IF_ERROR(addresses_->Resolve());
  std::vector<Endpoint> endpoints;
  for (const std::string& address : addresses_->all()) endpoints.push_back({.grpc_tls = address});
  if (endpoints.empty()) {
    MUSTER_ASSIGN_OR_RETURN(Endpoint endpoint, AwaitEndpoint());
    endpoints.push_back(std::move(endpoint));
  }
  std::vector<CoordinatorAnswer> answers;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    if (interrupt_.requested()) return Cancelled("interrupted");
    MUSTER_ASSIGN_OR_RETURN(const CoordinatorChannel coordinator,
                            OpenCoordinator(endpoints[i], remote_.credentials_dir, paths_.Token()));
    CoordinatorAnswer answer{.address = coordinator.address};
    grpc::ClientContext context;
    AttachToken(context, coordinator);
    context.set_deadline(SystemDeadline(kConnectLimit));
    const Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
    answer.status = FromGrpcStatus(
        v1::Client::NewStub(coordinator.channel)->Version(&context, {}, &answer.version));
    const std::string& leader = answer.version.leader();
    const bool is_new =
        !leader.empty() &&
        std::ranges::find(endpoints, leader, &Endpoint::grpc_tls) == endpoints.end();
    if (is_new && !remote_.credentials_dir.empty()) endpoints.push_back({.grpc_tls = leader});
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace muster
