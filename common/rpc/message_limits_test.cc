// Every field of what a worker sends has a limit, and the limits hold.

#include "common/rpc/message_limits.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "muster/v1/limits.pb.h"
#include "muster/v1/worker_api.pb.h"

namespace muster {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// From WorkerMessage to a field, through the messages that hold it.
using Path = std::vector<const FieldDescriptor*>;

std::string Text(const Path& path) {
  std::string text = "WorkerMessage";
  for (const FieldDescriptor* field : path) text += "." + field->name();
  return text;
}

void Walk(const Descriptor* type, Path path, const std::function<void(const Path&)>& visit) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    path.push_back(field);
    const bool is_text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (is_text || field->is_repeated()) visit(path);
    if (field->message_type() != nullptr) Walk(field->message_type(), path, visit);
    path.pop_back();
  }
}

void WalkAll(const std::function<void(const Path&)>& visit) {
  Walk(v1::WorkerMessage::descriptor(), {}, visit);
}

v1::Limit LimitOf(const Path& path) { return path.back()->options().GetExtension(v1::limit); }
bool IsText(const Path& path) { return path.back()->cpp_type() == FieldDescriptor::CPPTYPE_STRING; }

// The message that holds the path's last field; of each list on the way there is one entry.
Message* Holder(Message* message, const Path& path) {
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const Reflection& reflection = *message->GetReflection();
    const FieldDescriptor* field = path[i];
    if (!field->is_repeated())
      message = reflection.MutableMessage(message, field);
    else if (reflection.FieldSize(*message, field) > 0)
      message = reflection.MutableRepeatedMessage(message, field, 0);
    else
      message = reflection.AddMessage(message, field);
  }
  return message;
}

void AddEntry(Message* holder, const FieldDescriptor* field, std::size_t bytes) {
  const Reflection& reflection = *holder->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: reflection.AddMessage(holder, field); return;
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.AddString(holder, field, std::string(bytes, 'x'));
    case FieldDescriptor::CPPTYPE_INT32: return reflection.AddInt32(holder, field, 1);
    case FieldDescriptor::CPPTYPE_INT64: return reflection.AddInt64(holder, field, 1);
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.AddDouble(holder, field, 1);
    default: FAIL() << field->full_name() << ": say here how to add to such a list";
  }
}

// A worker's message whose field has so many bytes and, where it is a list, entries.
v1::WorkerMessage With(const Path& path, std::size_t bytes, std::size_t count) {
  v1::WorkerMessage message;
  Message* holder = Holder(&message, path);
  const FieldDescriptor* field = path.back();
  for (std::size_t i = 0; field->is_repeated() && i < count; ++i) AddEntry(holder, field, bytes);
  if (!field->is_repeated())
    holder->GetReflection()->SetString(holder, field, std::string(bytes, 'x'));
  return message;
}

void ExpectNoMoreThanTheLimitIsTaken(const Path& path, v1::WorkerMessage message,
                                     const v1::WorkerMessage& at_limit) {
  const Status status = ApplyLimits(&message);
  if (!LimitOf(path).cut()) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << Text(path);
    const std::string name = path.back()->containing_type()->name() + "." + path.back()->name();
    EXPECT_EQ(status.message().rfind(name + " has ", 0), 0u) << status.message();
    return;
  }
  EXPECT_TRUE(status.ok()) << Text(path) << ": " << status.ToString();
  EXPECT_EQ(message.SerializeAsString(), at_limit.SerializeAsString()) << Text(path);
}

TEST(MessageLimitsTest, EveryTextAndListOfAWorkersMessageHasALimit) {
  int fields = 0;
  WalkAll([&](const Path& path) {
    ++fields;
    const v1::Limit limit = LimitOf(path);
    if (IsText(path)) {
      EXPECT_GT(limit.bytes(), 0u) << Text(path) << " needs [(limit) = {bytes: N}]";
    }
    if (path.back()->is_repeated()) {
      EXPECT_GT(limit.count(), 0u) << Text(path) << " needs [(limit) = {count: N}]";
    }
  });
  EXPECT_GT(fields, 60);
}

TEST(MessageLimitsTest, EveryFieldIsTakenUpToItsLimitAndNoFurther) {
  WalkAll([](const Path& path) {
    const v1::Limit limit = LimitOf(path);
    const std::size_t bytes = limit.bytes();
    const std::size_t count = limit.count();
    const v1::WorkerMessage at_limit = With(path, bytes, count);
    v1::WorkerMessage within = at_limit;
    const Status status = ApplyLimits(&within);
    EXPECT_TRUE(status.ok()) << Text(path) << ": " << status.ToString();
    EXPECT_EQ(within.SerializeAsString(), at_limit.SerializeAsString()) << Text(path);
    if (path.back()->is_repeated())
      ExpectNoMoreThanTheLimitIsTaken(path, With(path, bytes, count + 1), at_limit);
    if (IsText(path)) ExpectNoMoreThanTheLimitIsTaken(path, With(path, bytes + 1, count), at_limit);
  });
}

TEST(MessageLimitsTest, TextIsNotCutWithinACharacter) {
  v1::WorkerMessage message;
  std::string* detail = message.mutable_node_notice()->mutable_detail();
  for (int i = 0; i < 9000; ++i) *detail += "\u00e9";
  message.mutable_node_notice()->mutable_detail()->insert(0, "x");
  ASSERT_TRUE(ApplyLimits(&message).ok());
  EXPECT_EQ(message.node_notice().detail().size(), 8191u);
}

}  // namespace
}  // namespace muster
