// Messages of workers, coordinators and clients as releases have sent them.
//
// Every message of the services, with every field of it filled, as bytes and as protobuf's JSON.
// This build must read the bytes as that JSON: a field that has another number, type or name, or an
// enum's value that has, shows.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/base/version.h"
#include "common/wire/codec.h"
#include "muster/v1/allocation_api.pb.h"
#include "muster/v1/client_api.pb.h"
#include "muster/v1/enrol_api.pb.h"
#include "muster/v1/secret_api.pb.h"
#include "muster/v1/worker_api.pb.h"
#include "tests/golden/release_golden.h"

namespace muster::golden {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::DescriptorPool;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::FileDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::Reflection;

constexpr char kFile[] = "/messages.jsonl";

// Fills every field with a value of its own, one element of each list, and one field of each oneof:
// `choice` says which, a digit for each oneof, the outermost first.
class Filler {
 public:
  explicit Filler(int choice) : choice_(choice) {}

  void Fill(Message* message) {
    const Descriptor& type = *message->GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.real_containing_oneof() == nullptr) FillField(message, field);
    }
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      const auto& oneof = *type.oneof_decl(i);
      const int count = oneof.field_count();
      choices_ *= count;
      FillField(message, *oneof.field(std::exchange(choice_, choice_ / count) % count));
    }
  }
  // How many there are, by the oneofs that were met.
  int choices() const { return choices_; }

 private:
  std::string Text(const FieldDescriptor& field) {
    // The receiver checks the form of these.
    if (field.name() == "job_id") return "00c0ffee10";
    if (field.name() == "node" || field.name() == "pilot") return "n1";
    if (field.name() == "id") return "GPU-" + std::to_string(++number_);
    return field.name() + "-" + std::to_string(++number_);
  }

  void FillField(Message* m, const FieldDescriptor& field) {
    const Reflection& r = *m->GetReflection();
    const bool list = field.is_repeated();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return list ? r.AddInt32(m, &field, ++number_) : r.SetInt32(m, &field, ++number_);
      case FieldDescriptor::CPPTYPE_INT64:
        return list ? r.AddInt64(m, &field, ++number_) : r.SetInt64(m, &field, ++number_);
      case FieldDescriptor::CPPTYPE_UINT32:
        return r.SetUInt32(m, &field, static_cast<std::uint32_t>(++number_));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r.SetUInt64(m, &field, static_cast<std::uint64_t>(++number_));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return list ? r.AddDouble(m, &field, ++number_ + 0.5)
                    : r.SetDouble(m, &field, ++number_ + 0.5);
      case FieldDescriptor::CPPTYPE_FLOAT: FAIL() << field.full_name() << ": no float is used";
      case FieldDescriptor::CPPTYPE_BOOL: return r.SetBool(m, &field, true);
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto& type = *field.enum_type();
        const int value = type.value(1 + ++number_ % (type.value_count() - 1))->number();
        return list ? r.AddEnumValue(m, &field, value) : r.SetEnumValue(m, &field, value);
      }
      case FieldDescriptor::CPPTYPE_STRING:
        return list ? r.AddString(m, &field, Text(field)) : r.SetString(m, &field, Text(field));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(list ? r.AddMessage(m, &field) : r.MutableMessage(m, &field));
    }
  }

  int choice_;
  int number_ = 0;
  int choices_ = 1;
};

std::unique_ptr<Message> New(const Descriptor& type) {
  return std::unique_ptr<Message>(MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

nlohmann::ordered_json JsonOf(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  return nlohmann::ordered_json::parse(text);
}

// Requests and answers of every service, by name.
std::map<std::string, const Descriptor*> MessageTypes() {
  std::map<std::string, const Descriptor*> types;
  for (const FileDescriptor* file :
       {v1::Hello::descriptor()->file(), v1::Job::descriptor()->file(),
        v1::JoinRequest::descriptor()->file(), v1::SecretResponse::descriptor()->file(),
        v1::PeerView::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const auto& method = *file->service(s)->method(m);
        for (const Descriptor* type : {method.input_type(), method.output_type()})
          types[type->full_name()] = type;
      }
    }
  }
  return types;
}

void SetProtocol(Message* message) {
  auto* const worker = dynamic_cast<v1::WorkerMessage*>(message);
  if (worker == nullptr || !worker->has_hello()) return;
  worker->mutable_hello()->set_protocol_version(kProtocols.max);
  worker->mutable_hello()->set_min_protocol_version(kProtocols.min);
}

void WriteMessages(const std::string& release) {
  std::vector<nlohmann::ordered_json> lines;
  for (const auto& [name, type] : MessageTypes()) {
    std::set<std::string> written;
    int choices = 1;
    for (int choice = 0; choice < choices; ++choice) {
      const std::unique_ptr<Message> message = New(*type);
      Filler filler(choice);
      filler.Fill(message.get());
      choices = std::max(choices, filler.choices());
      SetProtocol(message.get());
      const std::string bytes = message->SerializeAsString();
      const auto* const worker = dynamic_cast<const v1::WorkerMessage*>(message.get());
      const bool is_same_hello = worker != nullptr && worker->has_hello() && choice > 0;
      if (is_same_hello || !written.insert(bytes).second) continue;
      lines.push_back({{"type", name}, {"bytes", Hex(bytes)}, {"value", JsonOf(*message)}});
    }
  }
  WriteLines(release + kFile, lines);
}

// The plain values that both daemons work with are made of it as well.
void ExpectIsUnderstood(const Message& message) {
  if (const auto* worker = dynamic_cast<const v1::WorkerMessage*>(&message)) {
    if (worker->has_hello()) {
      EXPECT_TRUE(FromProto(worker->hello()).ok());
    } else {
      EXPECT_TRUE(FromProto(*worker).ok()) << FromProto(*worker).status().ToString();
    }
  } else if (const auto* coordinator = dynamic_cast<const v1::CoordinatorMessage*>(&message)) {
    EXPECT_TRUE(FromProto(*coordinator).ok()) << FromProto(*coordinator).status().ToString();
  }
}

TEST(WireGolden, MessagesOfReleasesMeanWhatTheyMeant) {
  ForEachRelease(WriteMessages, [](const std::string& release) {
    std::set<std::string> types;
    for (const auto& line : ReadLines(release + kFile)) {
      const auto name = line["type"].get<std::string>();
      SCOPED_TRACE(name);
      types.insert(name);
      const Descriptor* type = DescriptorPool::generated_pool()->FindMessageTypeByName(name);
      ASSERT_NE(type, nullptr) << "that release sends it";
      const std::unique_ptr<Message> message = New(*type);
      ASSERT_TRUE(message->ParseFromString(Unhex(line["bytes"].get<std::string>())));
      EXPECT_EQ(JsonOf(*message), line["value"]);
      ExpectIsUnderstood(*message);
    }
    EXPECT_TRUE(types.contains("muster.v1.WorkerMessage"));
    EXPECT_TRUE(types.contains("muster.v1.Job"));
  });
}

}  // namespace
}  // namespace muster::golden
