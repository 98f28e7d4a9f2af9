#include "common/job_spec/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/text.h"

namespace muster {
namespace {

constexpr std::size_t kMaxYamlBytes = 1 << 20;

// yaml-cpp passes control characters through; in a terminal or a log they could do harm.
Status CheckCharacters(std::string_view yaml, const std::string& file, const YamlKind& kind) {
  int line = 1;
  for (const char c : yaml) {
    if (c == '\n') ++line;
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t' && c != '\r') || byte == 0x7f)
      return InvalidArgument(file + ":" + std::to_string(line) +
                             ": control characters are not allowed in a " + kind.name);
  }
  line = 1;
  for (std::size_t at = 0; at < yaml.size(); ++line) {
    const std::string_view text = yaml.substr(at, yaml.find('\n', at) - at);
    if (ValidUtf8(text) != text)
      return InvalidArgument(file + ":" + std::to_string(line) + ": is not UTF-8");
    at += text.size() + 1;
  }
  return OkStatus();
}

// Counts the keys of all maps while yaml-cpp reads, and ends that at the first one too many.
class KeyCounter final : public YAML::EventHandler {
 public:
  struct TooMany {
    int line;
  };

  explicit KeyCounter(int most) : most_(most) {}

  // Where the newest document has its content.
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark&) override { line_ = 0; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Node(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Node(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string&) override {
    Node(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Node(mark);
    around_.push_back(Place::kList);
  }
  void OnSequenceEnd() override { around_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Node(mark);
    around_.push_back(Place::kKey);
  }
  void OnMapEnd() override { around_.pop_back(); }

 private:
  // What the next node is.
  enum class Place { kList, kKey, kValue };

  void Node(const YAML::Mark& mark) {
    if (line_ == 0) line_ = mark.line + 1;
    if (around_.empty() || around_.back() == Place::kList) return;
    const bool is_key = around_.back() == Place::kKey;
    around_.back() = is_key ? Place::kValue : Place::kKey;
    if (is_key && ++keys_ > most_) throw TooMany{mark.line + 1};
  }

  std::vector<Place> around_;
  int most_;
  int keys_ = 0;
  int line_ = 0;
};

// Before anything is made of them. yaml-cpp does not get past what cannot begin a node, such as a
// stray comma: it reads one empty document after the other there, without end. So it is asked for
// one document, and whether there is another.
Status CheckKeysAndDocuments(const std::string& yaml, const std::string& file,
                             const YamlKind& kind) {
  std::istringstream input(yaml);
  YAML::Parser parser(input);
  KeyCounter counter(kind.max_keys);
  try {
    if (!parser.HandleNextDocument(counter) || !parser.HandleNextDocument(counter))
      return OkStatus();
    return InvalidArgument(file + ":" + std::to_string(counter.line()) + ": a second document; a " +
                           kind.name + " has one");
  } catch (const KeyCounter::TooMany& at) {
    return InvalidArgument(file + ":" + std::to_string(at.line) + ": more than " +
                           std::to_string(kind.max_keys) + " keys, the most that a " + kind.name +
                           " may have");
  }
}

}  // namespace

Result<YAML::Node> LoadYaml(std::string_view yaml, const std::string& file, const YamlKind& kind) {
  if (yaml.size() > kMaxYamlBytes)
    return InvalidArgument(file + ": is larger than a " + kind.name + " may be (1 MiB)");
  MUSTER_RETURN_IF_ERROR(CheckCharacters(yaml, file, kind));
  const std::string text(yaml);
  MUSTER_RETURN_IF_ERROR(CheckKeysAndDocuments(text, file, kind));
  return YAML::Load(text);
}

}  // namespace muster
