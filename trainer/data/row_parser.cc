#include "trainer/data/row_parser.h"

#include "common/base/json.h"

namespace muster {
namespace {

// Templates write out tools and arguments in the order that the row has them in.
using Json = nlohmann::ordered_json;

constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};

// A required string member.
Result<std::string> StringAt(const Json& object, const std::string& key) {
  const auto it = object.find(key);
  if (it == object.end()) return InvalidArgument("\"" + key + "\" is missing");
  if (!it->is_string())
    return InvalidArgument("\"" + key + "\" is a " + it->type_name() + ", not a string");
  return it->get<std::string>();
}

// Absent and null both mean empty.
Result<std::string> StringOrEmpty(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return std::string();
  return StringAt(object, key);
}

// An assistant that calls tools need not say anything beside.
bool CallsTools(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

Result<ChatMessage> ParseMessage(const Json& json) {
  if (!json.is_object()) return InvalidArgument("is no object");
  ChatMessage message;
  MUSTER_ASSIGN_OR_RETURN(message.role, StringAt(json, "role"));
  if (CallsTools(json)) {
    MUSTER_ASSIGN_OR_RETURN(message.content, StringOrEmpty(json, "content"));
  } else {
    MUSTER_ASSIGN_OR_RETURN(message.content, StringAt(json, "content"));
  }
  if (json.size() > 2 || !json.contains("content")) message.json = json.dump();
  for (const char* role : kRoles)
    if (message.role == role) return message;
  return InvalidArgument("has the role \"" + message.role +
                         "\"; roles are system, user, assistant and tool");
}

Result<std::vector<RowSample>> ParseMessages(const Json& row) {
  const Json& json = row["messages"];
  if (!json.is_array() || json.empty())
    return InvalidArgument("\"messages\" is no list of turns {\"role\", \"content\"}");
  RowSample sample;
  sample.kind = RowSample::Kind::kChat;
  if (const auto tools = row.find("tools"); tools != row.end() && !tools->is_null()) {
    if (!tools->is_array()) return InvalidArgument("\"tools\" is no list");
    if (!tools->empty()) sample.tools = tools->dump();
  }
  for (std::size_t i = 0; i < json.size(); ++i) {
    auto message = ParseMessage(json[i]);
    if (!message.ok())
      return InvalidArgument("messages[" + std::to_string(i) + "] " + message.status().message());
    sample.messages.push_back(*std::move(message));
  }
  return std::vector<RowSample>{std::move(sample)};
}

RowSample InstructionSample(const std::string& instruction, const std::string& input,
                            std::string answer) {
  RowSample sample;
  sample.kind = RowSample::Kind::kAnswer;
  sample.user = input.empty() ? instruction : instruction + "\n" + input;
  sample.prompt = sample.user + "\n";
  sample.answer = std::move(answer);
  return sample;
}

Result<std::vector<RowSample>> ParseInstruction(const Json& row) {
  MUSTER_ASSIGN_OR_RETURN(const std::string instruction, StringAt(row, "instruction"));
  std::vector<RowSample> samples;
  const auto instances = row.find("instances");
  if (instances == row.end()) {
    MUSTER_ASSIGN_OR_RETURN(const std::string input, StringOrEmpty(row, "input"));
    MUSTER_ASSIGN_OR_RETURN(std::string output, StringAt(row, "output"));
    samples.push_back(InstructionSample(instruction, input, std::move(output)));
    return samples;
  }
  if (!instances->is_array() || instances->empty())
    return InvalidArgument("\"instances\" is no list of {\"input\", \"output\"}");
  for (std::size_t i = 0; i < instances->size(); ++i) {
    const Json& instance = (*instances)[i];
    const std::string where = "instances[" + std::to_string(i) + "]";
    if (!instance.is_object()) return InvalidArgument(where + " is no object");
    auto input = StringOrEmpty(instance, "input");
    if (!input.ok()) return input.status().WithContext(where);
    auto output = StringAt(instance, "output");
    if (!output.ok()) return output.status().WithContext(where);
    samples.push_back(InstructionSample(instruction, *input, *std::move(output)));
  }
  return samples;
}

Result<std::vector<RowSample>> ParsePrompt(const Json& row) {
  RowSample sample;
  sample.kind = RowSample::Kind::kAnswer;
  MUSTER_ASSIGN_OR_RETURN(sample.prompt, StringAt(row, "prompt"));
  MUSTER_ASSIGN_OR_RETURN(sample.answer, StringAt(row, "completion"));
  sample.user = sample.prompt;
  return std::vector<RowSample>{std::move(sample)};
}

Result<std::vector<RowSample>> ParseText(const Json& row, const std::string& field) {
  RowSample sample;
  MUSTER_ASSIGN_OR_RETURN(sample.text, StringAt(row, field));
  return std::vector<RowSample>{std::move(sample)};
}

std::string KeysOf(const Json& row) {
  std::string keys;
  for (const auto& [key, value] : row.items()) keys += (keys.empty() ? "" : ", ") + key;
  return keys.empty() ? "nothing" : keys;
}

}  // namespace

Result<std::vector<RowSample>> ParseRow(std::string_view line, const std::string& text_field) {
  Json row;
  try {
    row = Json::parse(line);
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("is not valid JSON: ") + error.what());
  }
  if (!row.is_object())
    return InvalidArgument(std::string("is a JSON ") + row.type_name() +
                           ", not an object; a row is an object, in a .jsonl file one per line");
  if (text_field != "text" && row.contains(text_field)) return ParseText(row, text_field);
  if (row.contains("messages")) return ParseMessages(row);
  if (row.contains("instruction")) return ParseInstruction(row);
  if (row.contains("prompt")) return ParsePrompt(row);
  if (row.contains(text_field)) return ParseText(row, text_field);
  return InvalidArgument(
      "has none of the known forms: messages, instruction with output or instances, prompt with "
      "completion, " +
      text_field + " (train.data.text_field); it has " + KeysOf(row));
}

}  // namespace muster
