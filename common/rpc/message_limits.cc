#include "common/rpc/message_limits.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/text.h"
#include "muster/v1/limits.pb.h"

namespace muster {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

// Fields that have a limit, or may have some below them. Found once per thread and type: progress
// comes many times a second from each node.
struct Rule {
  const FieldDescriptor* field = nullptr;
  v1::Limit limit;
};
const std::vector<Rule>& RulesOf(const Descriptor* type) {
  thread_local std::unordered_map<const Descriptor*, std::vector<Rule>> known;
  const auto [entry, is_new] = known.try_emplace(type);
  for (int i = 0; is_new && i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const v1::Limit& limit = field->options().GetExtension(v1::limit);
    if (limit.bytes() > 0 || limit.count() > 0 || IsMessage(*field))
      entry->second.push_back({field, limit});
  }
  return entry->second;
}

Status TooMuch(const Rule& rule, std::size_t size, std::size_t most, const char* unit) {
  return ResourceExhausted(rule.field->containing_type()->name() + "." + rule.field->name() +
                           " has " + std::to_string(size) + " " + unit + "; at most " +
                           std::to_string(most) + " are taken");
}

// Calls `set` with what is left of a text that is too long.
template <typename Set>
Status ApplyToText(const Rule& rule, const std::string& text, Set set) {
  const std::size_t most = rule.limit.bytes();
  if (most == 0 || text.size() <= most) return OkStatus();
  if (!rule.limit.cut()) return TooMuch(rule, text.size(), most, "bytes");
  set(CutText(text, most));
  return OkStatus();
}

Status ApplyToList(const Rule& rule, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  int size = reflection.FieldSize(*message, rule.field);
  const int most = static_cast<int>(rule.limit.count());
  if (most > 0 && size > most) {
    if (!rule.limit.cut())
      return TooMuch(rule, static_cast<std::size_t>(size), rule.limit.count(), "entries");
    for (; size > most; --size) reflection.RemoveLast(message, rule.field);
  }
  std::string scratch;
  for (int i = 0; i < size; ++i) {
    if (IsMessage(*rule.field)) {
      MUSTER_RETURN_IF_ERROR(
          ApplyLimits(reflection.MutableRepeatedMessage(message, rule.field, i)));
    } else if (rule.limit.bytes() > 0) {
      MUSTER_RETURN_IF_ERROR(ApplyToText(
          rule, reflection.GetRepeatedStringReference(*message, rule.field, i, &scratch),
          [&](std::string cut) {
            reflection.SetRepeatedString(message, rule.field, i, std::move(cut));
          }));
    }
  }
  return OkStatus();
}

}  // namespace

Status ApplyLimits(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::string scratch;
  for (const Rule& rule : RulesOf(message->GetDescriptor())) {
    if (rule.field->is_repeated()) {
      MUSTER_RETURN_IF_ERROR(ApplyToList(rule, message));
    } else if (IsMessage(*rule.field)) {
      if (!reflection.HasField(*message, rule.field)) continue;
      MUSTER_RETURN_IF_ERROR(ApplyLimits(reflection.MutableMessage(message, rule.field)));
    } else {
      MUSTER_RETURN_IF_ERROR(ApplyToText(
          rule, reflection.GetStringReference(*message, rule.field, &scratch),
          [&](std::string cut) { reflection.SetString(message, rule.field, std::move(cut)); }));
    }
  }
  return OkStatus();
}

}  // namespace muster
