#include "coordinator/service/client_service.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <variant>

#include "common/base/version.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/telemetry/log.h"
#include "coordinator/service/conversions.h"

namespace muster {
namespace {

// A year: what is meant is no limit.
constexpr double kMaxBySeconds = 365 * 24 * 3600.0;
constexpr std::int64_t kDayMillis = 24 * 3600 * 1000;

// Ten hexadecimal digits from the system's random source.
JobId RandomJobId() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  JobId id;
  for (int i = 0; i < 10; ++i) id.value += kDigits[random() & 15];
  return id;
}

class RefusedWatch final : public grpc::ServerWriteReactor<v1::WatchUpdate> {
 public:
  explicit RefusedWatch(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

void FillSubmitted(const Reply& reply, v1::SubmitResponse* response) {
  const auto* accepted = std::get_if<SubmitAccepted>(&reply.body);
  if (accepted == nullptr) return;
  response->set_id(accepted->id.value);
  response->set_name(accepted->name);
  response->set_state(static_cast<v1::JobState>(static_cast<int>(accepted->state)));
  response->set_existed(accepted->existed);
}

}  // namespace

ClientService::ClientService(Parts parts, std::string cluster)
    : parts_(parts), cluster_(std::move(cluster)) {}

ClientService::Reactor* ClientService::OnLoop(Context* context, std::function<void(Finish)> call) {
  Reactor* reactor = context->DefaultReactor();
  if (const grpc::Status status = parts_.authenticator.Check(*context); !status.ok()) {
    reactor->Finish(status);
    return reactor;
  }
  if (calls_.fetch_add(1) >= kMaxCalls) {
    --calls_;
    ++refused_;
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the coordinator is busy; try again"});
    return reactor;
  }
  const Finish finish = [this, reactor](const Status& status) {
    --calls_;
    reactor->Finish(ToGrpcStatus(status));
  };
  parts_.loop.Post([call = std::move(call), finish] { call(finish); });
  return reactor;
}

ClientService::Reactor* ClientService::Submit(Context* context, const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    SubmitRequested event{0, request->spec_yaml(), request->key(), RandomJobId()};
    parts_.host.Submit(std::move(event), [response, finish](const Reply& reply) {
      FillSubmitted(reply, response);
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::Cancel(Context* context, const v1::CancelRequest* request,
                                              v1::CancelResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    CancelRequested event{0, request->job(), request->reason()};
    parts_.host.Cancel(std::move(event), [response, finish](const Reply& reply) {
      if (const auto* accepted = std::get_if<CancelAccepted>(&reply.body)) {
        response->set_id(accepted->id.value);
        response->set_state(static_cast<v1::JobState>(static_cast<int>(accepted->state)));
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::Suspend(Context* context, const v1::SuspendRequest* request,
                                               v1::SuspendResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    const double by = request->by_seconds();
    if (!(by >= 0 && by <= kMaxBySeconds)) {
      return finish(InvalidArgument("by_seconds is out of range"));
    }
    SuspendRequested event{0, request->job(), by, request->reason()};
    parts_.host.Suspend(std::move(event), [response, finish](const Reply& reply) {
      if (const auto* accepted = std::get_if<SuspendAccepted>(&reply.body)) {
        response->set_id(accepted->id.value);
        response->set_state(static_cast<v1::JobState>(static_cast<int>(accepted->state)));
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::Resume(Context* context, const v1::ResumeRequest* request,
                                              v1::ResumeResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    parts_.host.Resume(ResumeRequested{0, request->job()}, [response, finish](const Reply& reply) {
      if (const auto* accepted = std::get_if<ResumeAccepted>(&reply.body)) {
        response->set_id(accepted->id.value);
        response->set_state(static_cast<v1::JobState>(static_cast<int>(accepted->state)));
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::Drain(Context* context, const v1::DrainRequest* request,
                                             v1::DrainResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    const double by = request->by_seconds();
    if (!(by >= 0 && by <= kMaxBySeconds)) {
      return finish(InvalidArgument("by_seconds is out of range"));
    }
    DrainRequested event{0, NodeName{request->node()}, by, request->reason()};
    parts_.host.Drain(std::move(event), [response, finish](const Reply& reply) {
      if (const auto* accepted = std::get_if<DrainAccepted>(&reply.body)) {
        response->set_state(static_cast<v1::NodeState>(static_cast<int>(accepted->state)));
        for (const JobId& job : accepted->jobs) response->add_jobs(job.value);
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::Undrain(Context* context, const v1::UndrainRequest* request,
                                               v1::UndrainResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    UndrainRequested event{0, NodeName{request->node()}};
    parts_.host.Undrain(std::move(event), [response, finish](const Reply& reply) {
      if (const auto* accepted = std::get_if<UndrainAccepted>(&reply.body)) {
        response->set_state(static_cast<v1::NodeState>(static_cast<int>(accepted->state)));
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::InjectFault(Context* context,
                                                   const v1::InjectFaultRequest* request,
                                                   v1::InjectFaultResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    InjectFaultRequested event{0,
                               request->job(),
                               request->rank(),
                               NodeName{request->node()},
                               request->kind(),
                               request->argument()};
    parts_.host.InjectFault(std::move(event), [response, finish](const Reply& reply) {
      if (const auto* accepted = std::get_if<FaultAccepted>(&reply.body)) {
        response->set_node(accepted->node.value);
        response->set_generation(accepted->generation);
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::VerifyCheckpoints(
    Context* context, const v1::VerifyCheckpointsRequest* request,
    v1::VerifyCheckpointsResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    parts_.host.Verify(VerifyRequested{0, request->job()}, [response, finish](const Reply& reply) {
      if (const auto* verified = std::get_if<CheckpointsVerified>(&reply.body)) {
        response->set_whole(verified->whole);
        for (const std::string& directory : verified->damaged) response->add_damaged(directory);
      }
      finish(reply.status);
    });
  });
}

ClientService::Reactor* ClientService::GetJob(Context* context, const v1::GetJobRequest* request,
                                              v1::Job* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    const Result<JobView> view = parts_.host.controller().FindJob(request->job());
    if (!view.ok()) return finish(view.status());
    *response = ToProto(*view, JobDetail::kFull, SystemClock().Now());
    parts_.host.AfterDurable(finish);
  });
}

ClientService::Reactor* ClientService::ListJobs(Context* context,
                                                const v1::ListJobsRequest* request,
                                                v1::ListJobsResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    const std::int64_t oldest = SystemClock().UnixMillis() - kDayMillis;
    const TimePoint now = SystemClock().Now();
    for (const JobView& view : parts_.host.controller().Jobs()) {
      const bool old = IsTerminal(view.record->state) && view.record->ended_unix_ms < oldest;
      if (!old || request->all()) *response->add_jobs() = ToProto(view, JobDetail::kSummary, now);
    }
    *response->mutable_cluster() = ToProto(parts_.host.controller().ClusterGoodput(now));
    parts_.host.AfterDurable(finish);
  });
}

ClientService::Reactor* ClientService::ListNodes(Context* context, const v1::ListNodesRequest*,
                                                 v1::ListNodesResponse* response) {
  return OnLoop(context, [this, response](const Finish& finish) {
    for (const NodeView& view : parts_.host.controller().Nodes()) {
      *response->add_nodes() = ToProto(view);
    }
    parts_.host.AfterDurable(finish);
  });
}

ClientService::Reactor* ClientService::ListEvents(Context* context,
                                                  const v1::ListEventsRequest* request,
                                                  v1::ListEventsResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    EventQuery query{.job = {}, .after_seq = request->after_seq(), .limit = request->limit()};
    if (query.limit <= 0 || query.limit > kMaxEvents) query.limit = kMaxEvents;
    if (!request->job().empty()) {
      const Result<JobView> view = parts_.host.controller().FindJob(request->job());
      if (!view.ok()) return finish(view.status());
      query.job = view->record->id;
    }
    const auto& kept = parts_.host.controller().Events();
    const bool all_in_memory = !kept.empty() && kept.front().seq <= query.after_seq + 1;
    if (!all_in_memory) return ListStoredEvents(std::move(query), response, finish);
    auto event = std::upper_bound(
        kept.begin(), kept.end(), query.after_seq,
        [](std::uint64_t seq, const EventRecord& record) { return seq < record.seq; });
    for (; event != kept.end() && response->events_size() < query.limit; ++event) {
      if (query.job.empty() || event->job == query.job) *response->add_events() = ToProto(*event);
    }
    parts_.host.AfterDurable(finish);
  });
}

// Only what is durable is in the store, so nothing need be waited for.
void ClientService::ListStoredEvents(EventQuery query, v1::ListEventsResponse* response,
                                     Finish finish) {
  parts_.store.ReadEvents(std::move(query), [this, response, finish = std::move(finish)](
                                                Result<std::vector<EventRecord>> events) {
    Status status = events.ok() ? OkStatus() : events.status();
    if (events.ok()) {
      for (const EventRecord& event : *events) *response->add_events() = ToProto(event);
    }
    parts_.loop.Post([finish, status = std::move(status)] { finish(status); });
  });
}

ClientService::Reactor* ClientService::ReadLog(Context* context, const v1::ReadLogRequest* request,
                                               v1::ReadLogResponse* response) {
  return OnLoop(context, [this, request, response](const Finish& finish) {
    const Result<LogLocation> location =
        parts_.host.controller().LocateLog(request->job(), request->rank(), request->generation());
    if (!location.ok()) return finish(location.status());
    parts_.workers.ReadLog(*location, request->rank(), request->offset(),
                           [response, finish, final = location->final](Result<v1::LogChunk> chunk) {
                             if (!chunk.ok()) return finish(chunk.status());
                             response->set_data(std::move(*chunk->mutable_data()));
                             response->set_next_offset(chunk->next_offset());
                             response->set_at_end(chunk->at_end());
                             response->set_final(final);
                             response->set_path(chunk->path());
                             finish(OkStatus());
                           });
  });
}

ClientService::Reactor* ClientService::Version(Context* context, const v1::VersionRequest*,
                                               v1::VersionResponse* response) {
  return OnLoop(context, [this, response](const Finish& finish) {
    response->set_version(kVersion);
    response->set_protocol_version(kProtocolVersion);
    response->set_cluster(cluster_);
    finish(OkStatus());
  });
}

grpc::ServerWriteReactor<v1::WatchUpdate>* ClientService::Watch(Context* context,
                                                                const v1::WatchRequest* request) {
  if (const grpc::Status status = parts_.authenticator.Check(*context); !status.ok()) {
    return new RefusedWatch(status);
  }
  auto stream = std::make_shared<WatchStream>(parts_.loop, parts_.watches,
                                              PeerCertificate(*context->auth_context()));
  stream->Begin();
  parts_.loop.Post([this, stream, request = *request] { parts_.watches.Add(stream, request); });
  return stream.get();
}

}  // namespace muster
