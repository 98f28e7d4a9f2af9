#include "worker/allocation/peer_link.h"

#include <grpcpp/client_context.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/rpc/tls.h"
#include "muster/v1/allocation_api.grpc.pb.h"
#include "worker/allocation/loop_gate.h"
#include "worker/allocation/open_calls.h"

namespace muster::worker {
namespace {

// More questions at once than an allocation has nodes.
constexpr std::size_t kMaxQuestions = 4096;
constexpr std::chrono::milliseconds kShutdownGrace{200};

void ToProto(const Member& member, v1::AllocationMember* proto) {
  proto->set_index(member.index);
  proto->set_node(member.node);
  proto->set_address(member.address);
  proto->set_without_worker(!member.has_worker);
}

Member FromProto(const v1::AllocationMember& proto) {
  return {proto.index(), proto.node(), proto.address(), !proto.without_worker()};
}

v1::PeerView ToProto(const PeerView& view, const std::string& allocation) {
  v1::PeerView proto;
  proto.set_allocation(allocation);
  proto.set_run(view.run);
  ToProto(view.self, proto.mutable_self());
  proto.set_epoch(view.leadership.epoch);
  ToProto(view.leadership.leader, proto.mutable_leader());
  proto.set_coordinator_grpc(view.leadership.grpc);
  proto.set_coordinator_http(view.leadership.http);
  proto.set_leader_answers(view.leader_answers);
  proto.set_unfit(view.unfit);
  proto.set_stop_seconds(view.stop_seconds);
  proto.set_stop_reason(view.stop_reason);
  if (!view.ending) return proto;
  v1::AllocationEnding& ending = *proto.mutable_ending();
  ending.set_exit_code(view.ending->exit_code);
  ending.set_requeue(view.ending->action == EndAction::kRequeue);
  ending.set_reason(view.ending->reason);
  for (const std::string& node : view.ending->exclude) ending.add_exclude(node);
  return proto;
}

PeerView FromProto(const v1::PeerView& proto) {
  PeerView view;
  view.self = FromProto(proto.self());
  view.run = proto.run();
  view.leadership = {proto.epoch(), FromProto(proto.leader()), proto.coordinator_grpc(),
                     proto.coordinator_http()};
  view.leader_answers = proto.leader_answers();
  view.unfit = proto.unfit();
  view.stop_seconds = proto.stop_seconds();
  view.stop_reason = proto.stop_reason();
  if (!proto.has_ending()) return view;
  const v1::AllocationEnding& ending = proto.ending();
  view.ending = Ending{.exit_code = ending.exit_code(),
                       .action = ending.requeue() ? EndAction::kRequeue : EndAction::kLeave,
                       .reason = ending.reason(),
                       .exclude = {ending.exclude().begin(), ending.exclude().end()}};
  return view;
}

// Accepts peers with a node's certificate of this allocation, which TLS has verified.
class NodesOnly final : public grpc::AuthMetadataProcessor {
 public:
  explicit NodesOnly(std::string allocation) : allocation_(std::move(allocation)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    if (!HasCertificate(*context))
      return ToGrpcStatus(Unauthenticated("a supervisor shows a certificate"));
    const auto peer = PeerCertificate(*context);
    const bool fits =
        peer && peer->identity.role == Role::kNode && peer->identity.cluster == allocation_;
    return fits ? grpc::Status::OK
                : ToGrpcStatus(PermissionDenied("only nodes of this allocation may ask"));
  }

 private:
  const std::string allocation_;
};

// A node's certificate speaks for its node, asking or answering.
Status CheckSpeaksFor(const grpc::AuthContext& context, const std::string& node) {
  const auto peer = PeerCertificate(context);
  if (peer && peer->identity.name == node) return OkStatus();
  return PermissionDenied("the certificate of " + (peer ? peer->identity.name : "an unknown peer") +
                          " is not valid for node " + node);
}

// gRPC has one code for a machine that refuses and for one that no packet comes back from; only its
// text tells them apart.
Status Unanswered(const grpc::Status& status) {
  Status error = FromGrpcStatus(status);
  const bool refused = error.message().find("Connection refused") != std::string::npos;
  if (error.code() != StatusCode::kUnavailable || refused) return error;
  return DeadlineExceeded(error.message());
}

struct Question : OpenCall {
  v1::PeerView request;
  v1::PeerView response;
};

}  // namespace

struct PeerLink::Impl : v1::Supervisor::CallbackService {
  Impl(EventLoop& loop_in, Options options_in, OnAsked on_asked_in)
      : gate(LoopGate::To(loop_in)),
        options(std::move(options_in)),
        on_asked(std::move(on_asked_in)) {}
  ~Impl() override {
    gate->Close();
    questions->CancelAndWait();
    // The loop may never process them, and the server's end waits for each.
    while (grpc::ServerUnaryReactor* reactor = TakeAny()) FinishUnanswered(reactor);
    if (server) server->Shutdown(SystemDeadline(kShutdownGrace));
  }

  Status Begin();
  Status Check(const v1::PeerView& proto) const;
  void Asked(const v1::PeerView& request, v1::PeerView* response,
             grpc::ServerUnaryReactor* reactor);
  Result<v1::Supervisor::Stub*> StubOf(const std::string& peer);

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context, const v1::PeerView* request,
                                 v1::PeerView* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const Status speaks = CheckSpeaksFor(*context->auth_context(), request->self().node());
    if (!speaks.ok()) {
      reactor->Finish(ToGrpcStatus(speaks));
      return reactor;
    }
    {
      const std::lock_guard lock(mutex);
      unanswered.insert(reactor);
    }
    const bool posted = gate->Post([this, request, response, reactor] {
      if (Take(reactor)) Asked(*request, response, reactor);
    });
    if (!posted && Take(reactor)) FinishUnanswered(reactor);
    return reactor;
  }

  // The code that takes a reactor finishes it.
  bool Take(grpc::ServerUnaryReactor* reactor) {
    const std::lock_guard lock(mutex);
    return unanswered.erase(reactor) > 0;
  }
  grpc::ServerUnaryReactor* TakeAny() {
    const std::lock_guard lock(mutex);
    return unanswered.empty() ? nullptr : unanswered.extract(unanswered.begin()).value();
  }
  static void FinishUnanswered(grpc::ServerUnaryReactor* reactor) {
    reactor->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "this supervisor ends"));
  }

  const std::shared_ptr<LoopGate> gate;
  const Options options;
  const OnAsked on_asked;
  std::unique_ptr<grpc::Server> server;
  std::string address;
  std::map<std::string, std::unique_ptr<v1::Supervisor::Stub>> stubs;
  const std::shared_ptr<OpenCalls> questions = std::make_shared<OpenCalls>();
  std::mutex mutex;
  std::set<grpc::ServerUnaryReactor*> unanswered;
};

Status PeerLink::Impl::Begin() {
  MUSTER_ASSIGN_OR_RETURN(
      const auto credentials,
      TlsServerCredentials(options.answers_with, std::make_shared<NodesOnly>(options.allocation)));
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(JoinAddress({options.address, 0}), credentials, &port);
  builder.RegisterService(this);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(64 << 10);
  server = builder.BuildAndStart();
  if (!server || port <= 0) {
    return Unavailable("nothing can listen at " + options.address +
                       "; is it an address of this node? --interface names another");
  }
  address = JoinAddress({options.address, static_cast<std::uint16_t>(port)});
  return OkStatus();
}

Status PeerLink::Impl::Check(const v1::PeerView& proto) const {
  if (proto.allocation() == options.allocation && proto.run() == options.run) return OkStatus();
  return FailedPrecondition("this is run " + std::to_string(options.run) + " of allocation " +
                            options.allocation + ", not run " + std::to_string(proto.run()) +
                            " of " + proto.allocation());
}

void PeerLink::Impl::Asked(const v1::PeerView& request, v1::PeerView* response,
                           grpc::ServerUnaryReactor* reactor) {
  const Status status = Check(request);
  if (status.ok()) *response = ToProto(on_asked(FromProto(request)), options.allocation);
  reactor->Finish(ToGrpcStatus(status));
}

Result<v1::Supervisor::Stub*> PeerLink::Impl::StubOf(const std::string& peer) {
  auto& stub = stubs[peer];
  if (!stub) {
    MUSTER_ASSIGN_OR_RETURN(const auto channel, OpenTlsChannel(peer, options.asks_with));
    stub = v1::Supervisor::NewStub(channel);
  }
  return stub.get();
}

PeerLink::PeerLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerLink::~PeerLink() = default;

Result<std::unique_ptr<PeerLink>> PeerLink::Listen(EventLoop& loop, Options options,
                                                   OnAsked on_asked) {
  auto impl = std::make_unique<Impl>(loop, std::move(options), std::move(on_asked));
  MUSTER_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<PeerLink>(new PeerLink(std::move(impl)));
}

const std::string& PeerLink::address() const { return impl_->address; }

std::size_t PeerLink::unanswered() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->unanswered.size();
}

void PeerLink::Ask(const std::string& address, const PeerView& view, Duration limit,
                   OnAnswer done) {
  Impl& impl = *impl_;
  if (impl.questions->size() >= kMaxQuestions)
    return done(ResourceExhausted("too many questions at once"));
  const auto stub = impl.StubOf(address);
  if (!stub.ok()) return done(FailedPrecondition(stub.status().message()));
  auto question = std::make_shared<Question>();
  question->request = ToProto(view, impl.options.allocation);
  question->context.set_deadline(SystemDeadline(limit));
  const std::uint64_t id = impl.questions->Add(question);
  auto on_done = [&impl, id, questions = impl.questions, gate = impl.gate,
                  done = std::move(done)](const grpc::Status& status) {
    questions->Ended();
    gate->Post([&impl, id, questions, done, status] {
      const auto asked = std::static_pointer_cast<Question>(questions->Take(id));
      if (!asked) return;
      if (!status.ok()) return done(Unanswered(status));
      Status fits = impl.Check(asked->response);
      if (fits.ok())
        fits = CheckSpeaksFor(*asked->context.auth_context(), asked->response.self().node());
      if (!fits.ok()) return done(fits);
      done(FromProto(asked->response));
    });
  };
  (*stub)->async()->Ping(&question->context, &question->request, &question->response,
                         std::move(on_done));
}

}  // namespace muster::worker
