// What users may do at a real coordinator, over TLS, each with a certificate of its own: every cell
// of coordinator/testdata/roles.txt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "common/audit/audit_chain.h"
#include "coordinator/access/operations.h"
#include "coordinator/access/testing/role_cells.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "muster/v1/secret_api.grpc.pb.h"
#include "muster/v1/worker_api.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/https_get.h"
#include "tests/support/tls_server_test.h"

namespace muster {
namespace {

using Stub = v1::Client::Stub;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNoSuchJob[] = "0000000000";

class RolesTest : public TlsServerTest {
 protected:
  void SetUp() override {
    StartTlsServer();
    Apply(*Admin(), &Stub::ApplyQueues, kRoleQueues, 0);
    Apply(*Admin(), &Stub::ApplyUsers, UsersWhoSubmit(), 0);
  }

  Stub* Admin() { return StubOf("certificate"); }
  Stub* StubOf(const std::string& column) {
    std::unique_ptr<Stub>& stub = stubs_[column];
    if (!stub) stub = v1::Client::NewStub(Channel(CredentialsOf(column)));
    return stub.get();
  }
  std::unique_ptr<v1::Secrets::Stub> SecretsOf(const std::string& column) {
    return v1::Secrets::NewStub(Channel(CredentialsOf(column)));
  }
  const std::string& CredentialsOf(const std::string& column) {
    std::string& dir = credentials_[column];
    if (dir.empty())
      dir = column == "certificate" ? ours_.Make(Role::kAdmin, "root")
                                    : ours_.Make(Role::kUser, column);
    return dir;
  }

  static std::unique_ptr<grpc::ClientContext> Soon() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + kLimit);
    return context;
  }
  template <typename Request, typename Response>
  static grpc::Status Ask(Stub& stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                       Response*),
                          const Request& request, Response* response = nullptr) {
    Response own;
    return (stub.*method)(Soon().get(), request, response == nullptr ? &own : response);
  }
  template <typename Request, typename Response>
  static void Apply(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const std::string& yaml, std::uint64_t version) {
    Request request;
    request.set_yaml(yaml);
    request.set_expected_version(version);
    const grpc::Status status = Ask(stub, method, request);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  std::string SubmitTo(const std::string& column, const std::string& queue) {
    v1::SubmitRequest request;
    request.set_spec_yaml(Spec(column + "-" + queue + "-" + std::to_string(++submitted_), 1,
                               "queue: " + queue + "\n"));
    v1::SubmitResponse response;
    const grpc::Status status = Ask(*StubOf(column), &Stub::Submit, request, &response);
    EXPECT_TRUE(status.ok()) << column << " to " << queue << ": " << status.error_message();
    return response.id();
  }

  template <typename Request, typename Response>
  static grpc::Status OfJob(Stub& stub,
                            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                         Response*),
                            const std::string& job) {
    Request request;
    request.set_job(job);
    return Ask(stub, method, request);
  }
  static grpc::Status WatchOnce(Stub& stub, const std::string& job) {
    const auto context = Soon();
    v1::WatchRequest request;
    request.set_job(job);
    const auto reader = stub.Watch(context.get(), request);
    v1::WatchUpdate update;
    if (!reader->Read(&update)) return reader->Finish();
    context->TryCancel();
    return grpc::Status::OK;
  }
  static grpc::Status UpdateTo(Stub& stub, const std::string& job, const std::string& queue) {
    v1::UpdateJobRequest request;
    request.set_job(job);
    request.set_queue(queue);
    return Ask(stub, &Stub::UpdateJob, request);
  }

  using JobCall = std::function<grpc::Status(Stub&, const std::string& job)>;
  static const std::map<std::string, JobCall>& JobCalls() {
    static const auto of = [](auto method) {
      return [method](Stub& stub, const std::string& job) { return OfJob(stub, method, job); };
    };
    static const std::map<std::string, JobCall> calls = {
        {"GetJob", of(&Stub::GetJob)},
        {"Watch", WatchOnce},
        {"ReadLog", of(&Stub::ReadLog)},
        {"ListEvents", of(&Stub::ListEvents)},
        {"ExplainJob", of(&Stub::ExplainJob)},
        {"VerifyCheckpoints", of(&Stub::VerifyCheckpoints)},
        {"HoldJob", of(&Stub::HoldJob)},
        {"ReleaseJob", of(&Stub::ReleaseJob)},
        {"UpdateJob", of(&Stub::UpdateJob)},
        {"UpdateJob/vision",
         [](Stub& stub, const std::string& job) { return UpdateTo(stub, job, "vision"); }},
        {"Suspend", of(&Stub::Suspend)},
        {"Resume", of(&Stub::Resume)},
        {"InjectFault", of(&Stub::InjectFault)},
        {"Cancel", of(&Stub::Cancel)},
    };
    return calls;
  }

  using PlainCall = std::function<grpc::Status(Stub&, const std::string& column)>;
  std::map<std::string, PlainCall> PlainCalls() {
    static const auto of = [](auto method) {
      return [method](Stub& stub, const std::string&) { return Ask(stub, method, {}); };
    };
    const auto submit = [this](const std::string& queue) {
      return [this, queue](Stub& stub, const std::string& column) {
        v1::SubmitRequest request;
        request.set_spec_yaml(
            Spec(column + "-again-" + std::to_string(++submitted_), 1, "queue: " + queue + "\n"));
        return Ask(stub, &Stub::Submit, request);
      };
    };
    const auto explain = [](const std::string& queue) {
      return [queue](Stub& stub, const std::string& column) {
        v1::ExplainJobRequest request;
        request.set_spec_yaml(Spec(column + "-planned", 1, "queue: " + queue + "\n"));
        return Ask(stub, &Stub::ExplainJob, request);
      };
    };
    return {
        {"Submit/nlp", submit("nlp")},
        {"Submit/vision", submit("vision")},
        {"ExplainJob/nlp", explain("nlp")},
        {"ExplainJob/vision", explain("vision")},
        {"ListEvents/cluster", of(&Stub::ListEvents)},
        {"InjectFault/node", of(&Stub::InjectFault)},
        {"ListJobs", of(&Stub::ListJobs)},
        {"ListNodes", of(&Stub::ListNodes)},
        {"ShowQueues", of(&Stub::ShowQueues)},
        {"ShowUsage", of(&Stub::ShowUsage)},
        {"Version", of(&Stub::Version)},
        {"WhoAmI", of(&Stub::WhoAmI)},
        {"Drain", of(&Stub::Drain)},
        {"Undrain", of(&Stub::Undrain)},
        {"ExportSchedule",
         [](Stub& stub, const std::string&) {
           const auto context = Soon();
           const auto reader = stub.ExportSchedule(context.get(), {});
           for (v1::ExportScheduleResponse part; reader->Read(&part);) continue;
           return reader->Finish();
         }},
        {"ApplyQueues", of(&Stub::ApplyQueues)},
        {"ApplyUsers", of(&Stub::ApplyUsers)},
        {"ShowUsers", of(&Stub::ShowUsers)},
        {"ListAudit", of(&Stub::ListAudit)},
    };
  }

  std::map<std::string, PlainCall> SecretCalls() {
    const auto set_secret = [this](const std::string& queue) {
      return [this, queue](Stub&, const std::string& column) {
        v1::SetSecretRequest request;
        request.set_queue(queue);
        request.set_name("hf");
        request.set_value("canary");
        v1::SecretResponse response;
        return SecretsOf(column)->SetSecret(Soon().get(), request, &response);
      };
    };
    return {
        {"SetSecret/nlp", set_secret("nlp")},
        {"SetSecret/vision", set_secret("vision")},
        {"RemoveSecret/nlp",
         [this](Stub&, const std::string& column) {
           v1::RemoveSecretRequest request;
           request.set_queue("nlp");
           request.set_name("hf");
           v1::SecretResponse response;
           return SecretsOf(column)->RemoveSecret(Soon().get(), request, &response);
         }},
        {"ListSecrets",
         [this](Stub&, const std::string& column) {
           v1::ListSecretsResponse response;
           return SecretsOf(column)->ListSecrets(Soon().get(), {}, &response);
         }},
        {"RotateSecretKey",
         [this](Stub&, const std::string& column) {
           v1::RotateSecretKeyResponse response;
           return SecretsOf(column)->RotateSecretKey(Soon().get(), {}, &response);
         }},
    };
  }

  // Whatever else the call may fail by, it was admitted.
  static char Outcome(const grpc::Status& status) {
    switch (status.error_code()) {
      case grpc::StatusCode::PERMISSION_DENIED:
      case grpc::StatusCode::UNAUTHENTICATED: return '-';
      case grpc::StatusCode::NOT_FOUND:
        return status.error_message().starts_with("no job '") ? '0' : '+';
      default: return '+';
    }
  }

  static char PageOutcome(const std::string& answer) {
    if (answer.find("HTTP/1.1 403 ") != answer.npos) return '-';
    return answer.find("\r\n\r\nno job '") != answer.npos ? '0' : '+';
  }

  std::string GetPage(const std::string& path, const std::string& column) {
    const HostPort address = SplitAddress(server_->endpoint().http_tls);
    return HttpsGet(address.host, address.port, path,
                    {.credentials_dir = CredentialsOf(column), .with_certificate = true});
  }

  const RoleCells cells_ = ReadRoleCells(MUSTER_SOURCE_DIR "/coordinator/testdata/roles.txt");
  std::map<std::string, std::unique_ptr<Stub>> stubs_;
  std::map<std::string, std::string> credentials_;
  int submitted_ = 0;
};

TEST_F(RolesTest, EveryCellIsAsItWasWrittenByHand) {
  std::map<std::string, std::string> own;
  for (const std::string& column : cells_.columns) own[column] = SubmitTo(column, "nlp");
  const std::string anothers = SubmitTo("another", "nlp");
  const std::string outside = SubmitTo("another", "vision");
  Apply(*Admin(), &Stub::ApplyUsers, kRoleUsers, 1);
  int cells = 0;
  std::set<std::string> called;
  for (const auto& [row, call] : JobCalls()) {
    called.insert(row);
    for (const auto& [column, expected] : cells_.rows.at(row)) {
      std::string found;
      for (const std::string& job : {own[column], anothers, outside, std::string(kNoSuchJob)}) {
        // Moved to vision a job would be another cell's.
        found += Outcome(call(*StubOf(column), job));
        if (row == "UpdateJob/vision" && found.back() == '+')
          UpdateTo(*Admin(), job, job == outside ? "vision" : "nlp");
      }
      EXPECT_EQ(found, expected) << row << " by " << column;
      cells += 4;
    }
  }
  std::map<std::string, PlainCall> plain = PlainCalls();
  plain.merge(SecretCalls());
  for (const auto& [row, call] : plain) {
    called.insert(row);
    for (const auto& [column, expected] : cells_.rows.at(row)) {
      const grpc::Status status = call(*StubOf(column), column);
      EXPECT_EQ(std::string(1, Outcome(status)), expected)
          << row << " by " << column << ": " << status.error_message();
      ++cells;
    }
  }
  for (const auto& [row, by_column] : cells_.rows) {
    if (!row.starts_with("GET")) {
      EXPECT_TRUE(called.contains(row)) << "no call for row " << row;
      continue;
    }
    for (const auto& [column, expected] : by_column) {
      std::string found;
      if (expected.size() == 4)
        for (const std::string& job : {own[column], anothers, outside, std::string(kNoSuchJob)})
          found += PageOutcome(GetPage(row.substr(3) + "?job=" + job, column));
      else  // a stream of events would not end
        found =
            PageOutcome(GetPage(row.substr(3) + (row.ends_with("/events") ? "?job=" : ""), column));
      EXPECT_EQ(found, expected) << row << " by " << column;
      cells += static_cast<int>(expected.size());
    }
  }
  EXPECT_GE(cells, 600);
}

TEST_F(RolesTest, ListsHaveWhatTheCallerMaySeeAndNothingElse) {
  const std::string in_nlp = SubmitTo("another", "nlp");
  const std::string in_vision = SubmitTo("another", "vision");
  Apply(*Admin(), &Stub::ApplyUsers, kRoleUsers, 1);
  const auto listed = [&](const std::string& column, const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    EXPECT_TRUE(Ask(*StubOf(column), &Stub::ListJobs, request, &response).ok());
    std::set<std::string> ids;
    for (const v1::Job& job : response.jobs()) ids.insert(job.id());
    return ids;
  };
  EXPECT_EQ(listed("viewer", {}), std::set{in_nlp});
  EXPECT_EQ(listed("above", {}), std::set{in_nlp});
  EXPECT_EQ(listed("cluster_viewer", {}), (std::set{in_nlp, in_vision}));
  v1::ListJobsRequest request;
  request.set_queue("vision");
  EXPECT_EQ(listed("viewer", request), std::set<std::string>{});
  EXPECT_EQ(listed("cluster_viewer", request), std::set{in_vision});
  request.set_queue("");
  request.set_owner("viewer");
  EXPECT_EQ(listed("cluster_viewer", request), std::set<std::string>{});
  request.set_owner("another");
  EXPECT_EQ(listed("viewer", request), std::set{in_nlp});
  // A prefix and a name mean a job only to those who may see it.
  v1::Job job;
  v1::GetJobRequest get;
  get.set_job(in_vision.substr(0, 8));
  EXPECT_EQ(Ask(*StubOf("viewer"), &Stub::GetJob, get, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  get.set_job("another-vision-2");
  EXPECT_EQ(Ask(*StubOf("viewer"), &Stub::GetJob, get, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(Ask(*StubOf("cluster_viewer"), &Stub::GetJob, get, &job).ok());
  EXPECT_EQ(job.owner(), "another");
  EXPECT_EQ(job.submitter(), "another");
}

TEST_F(RolesTest, AnAdminWhoActsForAUserSubmitsTheUsersJob) {
  const auto context = Soon();
  context->AddMetadata(kAsUserKey, "viewer");
  v1::SubmitRequest request;
  request.set_spec_yaml(Spec("for-another", 1, "queue: nlp\n"));
  v1::SubmitResponse response;
  const grpc::Status status = Admin()->Submit(context.get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::Job job;
  v1::GetJobRequest get;
  get.set_job(response.id());
  ASSERT_TRUE(Ask(*Admin(), &Stub::GetJob, get, &job).ok());
  EXPECT_EQ(job.owner(), "viewer");
  EXPECT_EQ(job.submitter(), "root");
  // A user may not, and the key of a submit is the owner's alone.
  const auto forged = Soon();
  forged->AddMetadata(kAsUserKey, "another");
  EXPECT_EQ(StubOf("viewer")->Submit(forged.get(), request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(RolesTest, AWatchEndsWhenItsWatcherMayNotSeeTheJobAnyMore) {
  const std::string id = SubmitTo("viewer", "nlp");
  const auto context = Soon();
  v1::WatchRequest request;
  request.set_job(id);
  const auto reader = StubOf("viewer")->Watch(context.get(), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(reader->Read(&update));
  Apply(*Admin(), &Stub::ApplyUsers, "users: {another: }\n", 1);
  while (reader->Read(&update)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

// What its caller was allowed decided at the beginning alone.
TEST_F(RolesTest, AWatchForAnotherUserEndsOnceItsCallerIsNoAdmin) {
  const std::string id = SubmitTo("viewer", "nlp");
  Apply(*Admin(), &Stub::ApplyUsers, kRoleUsers, 1);
  const auto context = Soon();
  context->AddMetadata(kAsUserKey, "viewer");
  v1::WatchRequest request;
  request.set_job(id);
  const auto reader = StubOf("cluster_admin")->Watch(context.get(), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(reader->Read(&update));
  Apply(*Admin(), &Stub::ApplyUsers,
        "users: {viewer: , cluster_admin: }\nroles:\n"
        "  - {role: viewer, users: [viewer, cluster_admin]}\n",
        2);
  while (reader->Read(&update)) continue;
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("only an admin"));
}

TEST_F(RolesTest, TheTokenAdmitsNobodyWhileThereAreUsers) {
  const Result<v1::Job> job = Get(kNoSuchJob);
  EXPECT_EQ(job.status().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(job.status().message(), HasSubstr("--tls"));
  // Also after a restart, and with the users that the store has.
  StopServer();
  StartTlsServer();
  stubs_.clear();
  EXPECT_EQ(Get(kNoSuchJob).status().code(), StatusCode::kUnauthenticated);
  v1::ShowUsersResponse users;
  ASSERT_TRUE(Ask(*Admin(), &Stub::ShowUsers, {}, &users).ok());
  EXPECT_EQ(users.version(), 1u);
  EXPECT_EQ(users.yaml(), UsersWhoSubmit());
}

TEST_F(RolesTest, TheAuditTrailHasWhatWasAskedAndWhatWasRefused) {
  const std::string id = SubmitTo("submitter", "nlp");
  Apply(*Admin(), &Stub::ApplyUsers, kRoleUsers, 1);
  EXPECT_EQ(OfJob(*StubOf("viewer"), &Stub::Cancel, id).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(OfJob(*StubOf("submitter"), &Stub::Cancel, id).ok());
  // Refused at the door: a node's certificate.
  const auto node = v1::Client::NewStub(Channel(ours_.Make(Role::kNode, "n1")));
  EXPECT_EQ(OfJob(*node, &Stub::Cancel, id).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const auto trail = [&] {
    v1::ListAuditResponse response;
    EXPECT_TRUE(Ask(*Admin(), &Stub::ListAudit, {}, &response).ok());
    AuditVerifier verifier;
    std::vector<AuditEntry> entries;
    for (const std::string& line : response.lines()) {
      EXPECT_EQ(verifier.Add(line), OkStatus());
      entries.push_back(ReadAuditLine(line)->entry);
    }
    return entries;
  };
  std::vector<AuditEntry> entries;
  EXPECT_TRUE(Eventually([&] { return (entries = trail()).size() >= 7; }));
  const auto has = [&](const std::string& actor, const std::string& operation,
                       const std::string& object, const std::string& outcome) {
    return std::any_of(entries.begin(), entries.end(), [&](const AuditEntry& entry) {
      return entry.actor == actor && entry.operation == operation && entry.object == object &&
             entry.outcome == outcome && entry.peer.starts_with("ipv4:127.0.0.1:");
    });
  };
  EXPECT_TRUE(has("admin/root", "ApplyQueues", "version 1", "OK"));
  EXPECT_TRUE(has("admin/root", "ApplyUsers", "version 2", "OK"));
  EXPECT_TRUE(has("user/submitter", "Submit", "job " + id, "OK"));
  EXPECT_TRUE(has("user/submitter", "Cancel", "job " + id, "OK"));
  EXPECT_TRUE(has("user/viewer", "Cancel", "job " + id, "PERMISSION_DENIED"));
  EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), [](const AuditEntry& entry) {
    return entry.actor == "node/n1" && entry.operation == "Cancel" &&
           entry.outcome == "PERMISSION_DENIED";
  }));
  std::set<std::string> requests;
  for (const AuditEntry& entry : entries) requests.insert(entry.request);
  EXPECT_GE(requests.size(), entries.size() - 1) << "calls have ids of their own";
}

// All that is no mere reading is tried once by an admin, whatever it may fail by.
TEST_F(RolesTest, EveryOperationThatChangesAnythingIsInTheAuditTrail) {
  using enum ClientOperation;
  static const std::set<ClientOperation> kReads = {
      kGetJob,    kListJobs,       kWatch,     kExplainJob, kListEvents,
      kListNodes, kReadLog,        kVersion,   kWhoAmI,     kShowQueues,
      kShowUsage, kExportSchedule, kListAudit, kShowUsers,  kListSecrets};
  const std::string id = SubmitTo("certificate", "nlp");
  for (const char* row : {"SetSecret/nlp", "RotateSecretKey", "RemoveSecret/nlp"})
    EXPECT_TRUE(SecretCalls().at(row)(*Admin(), "certificate").ok()) << row;
  for (const auto& [row, call] : JobCalls()) call(*Admin(), id);
  for (const auto& [row, call] : PlainCalls()) call(*Admin(), "certificate");
  v1::ListAuditResponse trail;
  ASSERT_TRUE(Ask(*Admin(), &Stub::ListAudit, {}, &trail).ok());
  std::set<std::string> recorded;
  for (const std::string& line : trail.lines()) {
    const AuditEntry entry = ReadAuditLine(line)->entry;
    if (entry.actor == "admin/root" && entry.outcome != "PERMISSION_DENIED")
      recorded.insert(entry.operation);
  }
  for (const OperationRule& rule : OperationRules()) {
    const std::string name(Name(rule.operation));
    EXPECT_EQ(recorded.contains(name), !kReads.contains(rule.operation)) << name;
  }
}

// Jobs leave memory as soon as they have ended.
class ArchivedPageTest : public RolesTest {
 protected:
  void SetUp() override {
    ServerOptions options = Options();
    options.tls_listen = "127.0.0.1:0";
    options.tls_http = "127.0.0.1:0";
    options.retain = std::chrono::milliseconds(50);
    StartServer(std::move(options));
    Apply(*Admin(), &Stub::ApplyQueues, kRoleQueues, 0);
    Apply(*Admin(), &Stub::ApplyUsers, UsersWhoSubmit(), 0);
  }

  std::string Archive(const std::string& queue) {
    const std::string id = SubmitTo("another", queue);
    EXPECT_TRUE(OfJob(*Admin(), &Stub::Cancel, id).ok());
    EXPECT_TRUE(Eventually([this] {
      v1::ListJobsResponse left;
      return Ask(*Admin(), &Stub::ListJobs, {}, &left).ok() && left.jobs_size() == 0;
    }));
    return id;
  }

  // A stream of the page that stays open.
  std::unique_ptr<HttpsConnection> Open(const std::string& job, const std::string& column) {
    const HostPort address = SplitAddress(server_->endpoint().http_tls);
    auto connection = std::make_unique<HttpsConnection>(
        address.host, address.port, HttpsOptions{.credentials_dir = CredentialsOf(column)});
    EXPECT_TRUE(connection->stream);
    boost::asio::write(
        *connection->stream,
        boost::asio::buffer("GET /api/v1/events?job=" + job + " HTTP/1.1\r\nHost: muster\r\n\r\n"));
    return connection;
  }
  // Until `mark` has come, the stream has ended, or it is still there after three heartbeats.
  static std::string ReadUntil(HttpsConnection& connection, const std::string& mark) {
    std::string answer;
    boost::system::error_code error;
    for (int heartbeats = 0; heartbeats < 3 && !error && answer.find(mark) == answer.npos;) {
      char buffer[65536];
      const std::size_t size =
          connection.stream->read_some(boost::asio::buffer(buffer, sizeof buffer), error);
      answer.append(buffer, size);
      if (std::string(buffer, size).find(":\n\n") != std::string::npos) ++heartbeats;
    }
    return error ? answer + kEnded : answer;
  }
  static constexpr char kEnded[] = "<ended>";
};

TEST_F(ArchivedPageTest, AnArchivedJobIsShownOnlyToThoseWhoMaySeeIt) {
  const std::string in_nlp = Archive("nlp");
  const std::string in_vision = Archive("vision");
  Apply(*Admin(), &Stub::ApplyUsers, kRoleUsers, 1);
  EXPECT_THAT(ReadUntil(*Open(in_nlp, "viewer"), "event: parts"), HasSubstr("event: parts"));
  EXPECT_THAT(ReadUntil(*Open(in_vision, "cluster_viewer"), "event: parts"),
              HasSubstr("event: parts"));
  const auto body_of = [this](const std::string& job, const std::string& column) {
    std::string answer = ReadUntil(*Open(job, column), job);
    EXPECT_THAT(answer, HasSubstr("404 Not Found")) << column;
    answer = answer.substr(std::min(answer.size(), answer.find("\r\n\r\n")));
    return answer.replace(std::min(answer.size(), answer.find(job)), job.size(), "JOB");
  };
  for (const char* column : {"viewer", "submitter", "admin", "above"})
    EXPECT_EQ(body_of(in_vision, column), body_of(kNoSuchJob, column)) << column;
}

TEST_F(ArchivedPageTest, AStreamOfAnArchivedJobEndsWithTheRoleOfItsViewer) {
  const std::string in_nlp = Archive("nlp");
  Apply(*Admin(), &Stub::ApplyUsers, kRoleUsers, 1);
  const auto stream = Open(in_nlp, "viewer");
  ASSERT_THAT(ReadUntil(*stream, "event: parts"), HasSubstr("event: parts"));
  Apply(*Admin(), &Stub::ApplyUsers,
        "users: {viewer: }\nroles:\n  - {role: viewer, queues: [vision], users: [viewer]}\n", 2);
  EXPECT_THAT(ReadUntil(*stream, kEnded), HasSubstr(kEnded));
}

class SingleUserTest : public TlsServerTest {};

TEST_F(SingleUserTest, TheTokenStandsForWhoeverStartedTheCoordinator) {
  StartTlsServer();
  v1::WhoAmIResponse me;
  ASSERT_TRUE(Call(&Stub::WhoAmI, v1::WhoAmIRequest(), &me).ok());
  EXPECT_EQ(me.kind(), "admin");
  EXPECT_FALSE(me.name().empty());
  EXPECT_FALSE(me.has_users());
  const Result<v1::SubmitResponse> job = Submit(Spec("mine", 1));
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(Get(job->id())->owner(), me.name());
}

TEST_F(SingleUserTest, UsersAreNotAppliedByTheTokenNorOverANodeThatNeedsIt) {
  StartTlsServer();
  v1::ApplyUsersRequest request;
  request.set_yaml("users: {ada: }\n");
  v1::ApplyUsersResponse response;
  EXPECT_THAT(Call(&Stub::ApplyUsers, request, &response).message(), HasSubstr("--tls-listen"));
  FakeWorker worker(server_->endpoint().grpc, token_, FakeWorkerOptions{});
  ASSERT_EQ(worker.Connect(), OkStatus());
  const auto admin = v1::Client::NewStub(Channel(ours_.Make(Role::kAdmin, "root")));
  grpc::ClientContext context;
  const grpc::Status status = admin->ApplyUsers(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("is connected with it"));
  // A check changes nothing.
  request.set_check_only(true);
  EXPECT_TRUE(Call(&Stub::ApplyUsers, request, &response).ok());
}

TEST_F(SingleUserTest, WhatCameByTheTokenEndsOnceThereAreUsers) {
  StartTlsServer();
  const std::string id = SubmitId(Spec("mine", 1));
  const auto watching = Context();
  v1::WatchRequest request;
  request.set_job(id);
  const auto watch = client_->Watch(watching.get(), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(watch->Read(&update));
  // One that has not said which node it is.
  const auto worker = v1::Worker::NewStub(OpenChannel(server_->endpoint().grpc));
  const auto connected = Context();
  const auto session = worker->Session(connected.get());
  ASSERT_TRUE(Eventually([this] {
    return HttpGet(server_->endpoint().http, "/metrics").find("muster_worker_streams 1\n") !=
           std::string::npos;
  }));
  const auto admin = v1::Client::NewStub(Channel(ours_.Make(Role::kAdmin, "root")));
  v1::ApplyUsersRequest users;
  users.set_yaml("users: {ada: }\n");
  v1::ApplyUsersResponse applied;
  grpc::ClientContext context;
  const grpc::Status status = admin->ApplyUsers(&context, users, &applied);
  ASSERT_TRUE(status.ok()) << status.error_message();
  while (watch->Read(&update)) continue;
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  v1::CoordinatorMessage message;
  while (session->Read(&message)) continue;
  EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace muster
