#include "common/wire/codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "common/base/version.h"
#include "muster/v1/limits.pb.h"

namespace muster {
namespace {

using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

// Fills every field of a message by reflection, so that a field that the codec drops in either
// direction, a new one included, shows as a difference.
class RandomMessage {
 public:
  explicit RandomMessage(std::uint32_t seed) : random_(seed) {}

  // Sets one field of each oneof: `kind` where the message is an envelope.
  void Fill(Message* message) {
    const auto& type = *message->GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.real_containing_oneof() != nullptr) continue;
      FillField(message, field);
    }
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      const auto& choice = *type.oneof_decl(i);
      FillField(message, *choice.field(Below(choice.field_count())));
    }
  }

  void FillField(Message* message, const FieldDescriptor& field) {
    const Reflection& reflection = *message->GetReflection();
    if (!field.is_repeated()) return Set(message, field, reflection);
    for (int n = Below(4); n > 0; --n) Add(message, field, reflection);
  }

  int Below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

 private:
  std::string Text(const FieldDescriptor& field) {
    // The receiver checks the form of these.
    if (field.name() == "job_id") return "00c0ffee" + std::to_string(10 + Below(90));
    if (field.name() == "node" || field.name() == "pilot") return "n" + std::to_string(Below(100));
    if (field.name() == "id") return "GPU-" + std::to_string(random_());
    const std::string text = field.name() + " \xc3\xa9 " + std::to_string(random_());
    const std::uint64_t limit = field.options().GetExtension(v1::limit).bytes();
    return limit == 0 || text.size() <= limit ? text : std::to_string(Below(10));
  }
  int Known(const EnumDescriptor& type) {
    return type.value(1 + Below(type.value_count() - 1))->number();
  }
  double Number() { return std::uniform_real_distribution<double>(-1e6, 1e6)(random_); }

  void Set(Message* m, const FieldDescriptor& field, const Reflection& reflection) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return reflection.SetInt32(m, &field, Below(4000));
      case FieldDescriptor::CPPTYPE_INT64: return reflection.SetInt64(m, &field, random_());
      case FieldDescriptor::CPPTYPE_UINT32: return reflection.SetUInt32(m, &field, random_());
      case FieldDescriptor::CPPTYPE_UINT64: return reflection.SetUInt64(m, &field, random_());
      case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.SetDouble(m, &field, Number());
      case FieldDescriptor::CPPTYPE_FLOAT: FAIL() << field.full_name() << ": no float is used";
      case FieldDescriptor::CPPTYPE_BOOL: return reflection.SetBool(m, &field, Below(2) == 1);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.SetEnumValue(m, &field, Known(*field.enum_type()));
      case FieldDescriptor::CPPTYPE_STRING: return reflection.SetString(m, &field, Text(field));
      case FieldDescriptor::CPPTYPE_MESSAGE: return Fill(reflection.MutableMessage(m, &field));
    }
  }

  void Add(Message* m, const FieldDescriptor& field, const Reflection& reflection) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return reflection.AddInt32(m, &field, Below(4000));
      case FieldDescriptor::CPPTYPE_INT64: return reflection.AddInt64(m, &field, random_());
      case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.AddDouble(m, &field, Number());
      case FieldDescriptor::CPPTYPE_STRING: return reflection.AddString(m, &field, Text(field));
      case FieldDescriptor::CPPTYPE_MESSAGE: return Fill(reflection.AddMessage(m, &field));
      default: FAIL() << field.full_name() << ": add its type here";
    }
  }

  std::mt19937 random_;
};

// Nothing where they are equal, but for what only clients of the coordinator see of a checkpoint.
std::string Difference(const Message& a, const Message& b) {
  std::string difference;
  MessageDifferencer differencer;
  for (const char* name : {"verified_unix_ms", "refused"})
    differencer.IgnoreField(v1::CheckpointInfo::descriptor()->FindFieldByName(name));
  differencer.TreatAsSet(v1::NodeInventory::descriptor()->FindFieldByName("labels"));
  differencer.ReportDifferencesToString(&difference);
  return differencer.Compare(a, b) ? "" : difference;
}

template <typename Envelope>
void ExpectRoundTrips(const std::set<std::string>& apart) {
  const auto& kinds = *Envelope::descriptor()->oneof_decl(0);
  for (int i = 0; i < kinds.field_count(); ++i) {
    if (apart.contains(kinds.field(i)->name())) continue;
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
      Envelope sent;
      RandomMessage(seed).FillField(&sent, *kinds.field(i));
      const auto value = FromProto(sent);
      ASSERT_TRUE(value.ok()) << value.status().ToString() << "\n" << sent.DebugString();
      ASSERT_EQ(Difference(sent, ToProto(*value)), "") << kinds.field(i)->name();
    }
  }
}

TEST(Codec, EveryFieldOfEveryWorkerMessageSurvivesTheWay) {
  ExpectRoundTrips<v1::WorkerMessage>({"hello"});
}

TEST(Codec, EveryFieldOfEveryCoordinatorMessageSurvivesTheWay) {
  ExpectRoundTrips<v1::CoordinatorMessage>({});
}

TEST(Codec, EveryFieldOfAHelloSurvivesTheWay) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    v1::Hello sent;
    RandomMessage(seed).Fill(&sent);
    sent.set_protocol_version(kProtocols.max);
    sent.set_min_protocol_version(kProtocols.min);
    const auto value = FromProto(sent);
    ASSERT_TRUE(value.ok()) << value.status().ToString();
    ASSERT_EQ(Difference(sent, ToProto(*value)), "");
  }
}

TEST(Codec, AbsentPartsStayAbsent) {
  v1::WorkerMessage message;
  message.mutable_prepared();
  EXPECT_FALSE(std::get<Prepared>(*FromProto(message)).cuda.has_value());
  EXPECT_FALSE(ToProto(*FromProto(message)).prepared().has_cuda());
  message.mutable_rank_exited();
  EXPECT_FALSE(std::get<RankExited>(*FromProto(message)).last.has_value());
  message.mutable_trainer_report()->mutable_shard_written();
  const auto report = std::get<TrainerReport>(*FromProto(message));
  EXPECT_FALSE(std::get<ShardWritten>(report.body).eval_loss.has_value());
  EXPECT_FALSE(ToProto(WorkerMessage(report)).trainer_report().shard_written().has_eval_loss());
  v1::Hello hello;
  hello.set_node("n1");
  hello.set_protocol_version(kProtocolVersion);
  EXPECT_EQ(FromProto(hello)->inventory, NodeInventory{});
}

TEST(Codec, BytesThatAreNotUtf8AreRepairedWhenTheyAreSent) {
  const auto exited =
      ToProto(WorkerMessage(RankExited{.log_tail = {"bad \xff byte"}, .facts = {"\xff"}}));
  EXPECT_EQ(exited.rank_exited().log_tail(0), "bad \xef\xbf\xbd byte");
  EXPECT_EQ(exited.rank_exited().facts(0), "\xef\xbf\xbd");
  EXPECT_FALSE(exited.SerializeAsString().empty());
  EXPECT_EQ(ToProto(Hello{.report = {"no \xff text"}}).report(0), "no \xEF\xBF\xBD text");
  EXPECT_EQ(ToProto(WorkerMessage(TrainerReport{.body = TrainerError{.message = "\xff"}}))
                .trainer_report()
                .error()
                .message(),
            "\xef\xbf\xbd");
}

v1::Hello GoodHello() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node("n1");
  hello.set_slots(2);
  hello.add_hosted()->add_exited();
  return hello;
}

TEST(Codec, BadNamesAndCountsOfAHelloAreRefused) {
  EXPECT_TRUE(FromProto(GoodHello()).ok());
  for (const char* name : {"", "a/b", "..", "a b", "node\n"}) {
    v1::Hello hello = GoodHello();
    hello.set_node(name);
    EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument) << name;
  }
  v1::Hello hello = GoodHello();
  hello.set_slots(-1);
  EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument);
  hello = GoodHello();
  hello.set_pilot("../x");
  EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument);
  hello = GoodHello();
  hello.mutable_hosted(0)->mutable_exited(0)->set_rank(-1);
  EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument);
}

TEST(Codec, DevicesWithoutAnIdOfTheirOwnAreRefused) {
  v1::Hello hello = GoodHello();
  hello.mutable_inventory()->add_devices()->set_id("GPU-1");
  hello.mutable_inventory()->add_devices()->set_id("GPU-1#2");
  EXPECT_TRUE(FromProto(hello).ok());
  hello.mutable_inventory()->mutable_devices(1)->set_id("GPU-1");
  EXPECT_EQ(FromProto(hello).status().message(), "node n1: it reports device GPU-1 twice");
  for (const char* id : {"", "a/b", "..", "a b", "a\n"}) {
    hello.mutable_inventory()->mutable_devices(1)->set_id(id);
    EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument) << id;
  }
  hello = GoodHello();
  hello.mutable_inventory()->set_cpus(-1);
  EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument);
}

TEST(Codec, AHelloOfAnotherVersionIsNotReadFurther) {
  v1::Hello hello = GoodHello();
  hello.set_protocol_version(kProtocolVersion + 1);
  hello.mutable_hosted(0)->mutable_exited(0)->set_rank(-1);
  const auto converted = FromProto(hello);
  ASSERT_TRUE(converted.ok()) << converted.status().ToString();
  EXPECT_EQ(converted->protocol_version, kProtocolVersion + 1);
  EXPECT_TRUE(converted->hosted.empty());
}

TEST(Codec, AHelloWithoutAnOldestVersionSpeaksItsOneAlone) {
  v1::Hello hello = GoodHello();
  EXPECT_EQ(FromProto(hello)->min_protocol_version, kProtocolVersion);
  hello.set_protocol_version(kProtocols.max + 3);
  hello.set_min_protocol_version(1);
  EXPECT_EQ(FromProto(hello)->min_protocol_version, 1);
  EXPECT_EQ(FromProto(hello)->hosted.size(), 1u) << "they have a version in common";
}

TEST(Codec, WhatIsOverALimitIsCutOrRefusedAndNotTakenForMalformed) {
  v1::WorkerMessage message;
  message.mutable_node_notice()->set_kind(v1::NODE_NOTICE_KIND_DISK);
  message.mutable_node_notice()->set_detail(std::string(100'000, 'x'));
  EXPECT_EQ(std::get<NodeNotice>(*FromProto(message)).detail.size(), 8192u);
  message.mutable_released()->set_job_id(std::string(100, 'x'));
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kResourceExhausted);
  v1::Hello hello = GoodHello();
  for (int i = 0; i < 40; ++i) hello.add_report(std::string(1000, 'x'));
  const auto converted = FromProto(hello);
  ASSERT_EQ(converted->report.size(), 32u);
  EXPECT_EQ(converted->report[31].size(), 400u);
  const Hello sent{
      .hosted = {{.reports = {{.body = ShardWritten{.directory = std::string(999, 'd')}},
                              {.body = Formed{}}}}}};
  EXPECT_EQ(ToProto(sent).hosted(0).reports_size(), 1) << "the one over a limit is left out";
}

// A field of a number that this version does not have.
template <typename Message>
Message WithUnknownField(Message message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(1000, "new");
  return message;
}

TEST(Codec, WhatOnlyANewerPeerKnowsIsNotTakenForMalformed) {
  EXPECT_EQ(FromProto(v1::WorkerMessage()).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(FromProto(WithUnknownField(v1::WorkerMessage())).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(FromProto(WithUnknownField(v1::CoordinatorMessage())).status().code(),
            StatusCode::kUnimplemented);
  v1::WorkerMessage message;
  message.mutable_trainer_report();
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kUnimplemented);
  message.mutable_probe_result();
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kUnimplemented) << "no outcome";
  message.mutable_node_notice()->set_kind(static_cast<v1::NodeNoticeKind>(99));
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kUnimplemented) << "a new kind";
  message.mutable_checkpoint_scrubbed();
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kUnimplemented) << "no outcome";
  message.mutable_hello();
  EXPECT_THAT(FromProto(message).status().message(), HasSubstr("second Hello"));
}

// A node whose worker was newer could not connect while a rank's report of a new kind lay with a
// guardian.
TEST(Codec, AHelloIsReadWithoutWhatOnlyANewerWorkerKnows) {
  v1::Hello hello = WithUnknownField(GoodHello());
  v1::HostedGeneration& hosted = *hello.mutable_hosted(0);
  *hosted.add_reports() = WithUnknownField(v1::TrainerReport());
  hosted.add_reports()->mutable_formed();
  const Result<Hello> read = FromProto(hello);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->hosted[0].reports.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Formed>(read->hosted[0].reports[0].body));
}

TEST(Codec, AnUnknownValueOfAFieldThatOnlyDescribesIsNotKnown) {
  v1::WorkerMessage message;
  v1::RankProgress& rank = *message.mutable_progress()->add_ranks();
  rank.set_step(7);
  rank.set_phase(static_cast<v1::TrainPhase>(99));
  const auto progress = std::get<Progress>(*FromProto(message));
  EXPECT_EQ(progress.ranks[0].step, 7);
  EXPECT_FALSE(progress.ranks[0].phase.has_value());
  auto& failed = *message.mutable_trainer_report()->mutable_checkpoint_failed();
  failed.set_kind(static_cast<v1::CheckpointTrouble>(99));
  const auto report = std::get<TrainerReport>(*FromProto(message));
  EXPECT_EQ(std::get<CheckpointFailed>(report.body).kind, CheckpointTrouble::kOther);
}

// A worker makes a directory of a job's id, and removes it one day.
TEST(Codec, AJobIdThatLeadsOutOfItsDirectoryIsRefused) {
  for (const char* id : {"", ".", "..", "../../home", "a/b", "00C0FFEE", "x"}) {
    v1::CoordinatorMessage message;
    message.mutable_release()->set_job_id(id);
    EXPECT_FALSE(FromProto(message).ok()) << id;
    message.mutable_prepare()->set_job_id(id);
    EXPECT_FALSE(FromProto(message).ok()) << id;
    message.mutable_scrub_checkpoint()->set_job_id(id);
    EXPECT_FALSE(FromProto(message).ok()) << id;
    message.mutable_inject_fault()->set_job_id(id);
    EXPECT_EQ(FromProto(message).ok(), *id == '\0') << id << ": a fault may be of the node";
  }
}

}  // namespace
}  // namespace muster
