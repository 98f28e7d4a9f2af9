// ApplyOverrides: the job file as a tree of texts, changed, and written again.
//
// yaml-cpp's own writer drops the quotes of "5", which would change its type; hence the small one
// here. Its output is block style for maps and flow style for lists, and the same for the same
// input.

#include "common/base/json.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {
namespace {

constexpr std::size_t kMaxNodes = 20'000;  // aliases can multiply a small file
constexpr int kMaxDepth = 32;

struct Entry;
struct Tree {
  enum class Kind { kScalar, kList, kMap };
  Kind kind = Kind::kScalar;
  std::string text;  // of a scalar, as it is written
  std::vector<Entry> entries;
  std::vector<Tree> elements;
};
struct Entry {
  std::string key;
  Tree value;
};

// JSON's string syntax is a subset of YAML's double-quoted one.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Tree ToTree(const YAML::Node& node, int depth, std::size_t* budget) {
  if (depth > kMaxDepth || *budget == 0)
    throw YAML::Exception(node.Mark(), "too large or too deeply nested");
  --*budget;
  Tree tree;
  if (node.IsMap()) {
    tree.kind = Tree::Kind::kMap;
    for (const auto& pair : node)
      tree.entries.push_back({pair.first.IsScalar() ? pair.first.Scalar() : "?",
                              ToTree(pair.second, depth + 1, budget)});
  } else if (node.IsSequence()) {
    tree.kind = Tree::Kind::kList;
    for (const auto& element : node) tree.elements.push_back(ToTree(element, depth + 1, budget));
  } else {
    const ScalarKind kind = KindOfScalar(node);
    if (kind == ScalarKind::kNull)
      tree.text = "null";
    else
      tree.text = kind == ScalarKind::kText ? Quoted(node.Scalar()) : node.Scalar();
  }
  return tree;
}

void WriteFlow(const Tree& tree, std::string* out) {
  switch (tree.kind) {
    case Tree::Kind::kScalar: *out += tree.text; return;
    case Tree::Kind::kList:
      *out += '[';
      for (std::size_t i = 0; i < tree.elements.size(); ++i) {
        if (i > 0) *out += ", ";
        WriteFlow(tree.elements[i], out);
      }
      *out += ']';
      return;
    case Tree::Kind::kMap:
      *out += '{';
      for (std::size_t i = 0; i < tree.entries.size(); ++i) {
        if (i > 0) *out += ", ";
        *out += Quoted(tree.entries[i].key) + ": ";
        WriteFlow(tree.entries[i].value, out);
      }
      *out += '}';
      return;
  }
}

std::string KeyText(const std::string& key) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  const bool plain = !key.empty() && (key[0] < '0' || key[0] > '9') &&
                     key.find_first_not_of(kPlain) == std::string::npos;
  return plain ? key : Quoted(key);
}

void WriteBlock(const Tree& map, int indent, std::string* out) {
  for (const auto& [key, value] : map.entries) {
    *out += std::string(static_cast<std::size_t>(indent), ' ') + KeyText(key) + ":";
    if (value.kind == Tree::Kind::kMap && !value.entries.empty()) {
      *out += '\n';
      WriteBlock(value, indent + 2, out);
    } else {
      *out += ' ';
      WriteFlow(value, out);
      *out += '\n';
    }
  }
}

Status Apply(const std::string& override, Tree* root) {
  const std::size_t equals = override.find('=');
  if (equals == std::string::npos || equals == 0)
    return InvalidArgument("override '" + override +
                           "' is not KEY=VALUE, such as train.optimizer.lr=1e-4");
  const std::string key = override.substr(0, equals);
  Tree* tree = root;
  for (std::size_t start = 0; start <= key.size();) {
    const std::size_t dot = std::min(key.find('.', start), key.size());
    const std::string part = key.substr(start, dot - start);
    if (part.empty()) return InvalidArgument("override '" + override + "': empty part in its key");
    const bool replaceable = tree->kind == Tree::Kind::kScalar && tree->text == "null";
    if (replaceable) *tree = Tree{.kind = Tree::Kind::kMap};
    if (tree->kind != Tree::Kind::kMap)
      return InvalidArgument("override '" + override + "': '" +
                             key.substr(0, start ? start - 1 : 0) +
                             "' is no map, so it has no key '" + part + "'");
    Tree* next = nullptr;
    for (auto& [name, value] : tree->entries)
      if (name == part) next = &value;
    if (next == nullptr) next = &tree->entries.emplace_back(Entry{part, {.text = "null"}}).value;
    tree = next;
    start = dot + 1;
  }
  const std::string value = override.substr(equals + 1);
  std::size_t budget = kMaxNodes;
  *tree = value.empty() ? Tree{.text = "\"\""} : ToTree(YAML::Load(value), 0, &budget);
  return OkStatus();
}

}  // namespace

Result<std::string> ApplyOverrides(std::string_view yaml,
                                   const std::vector<std::string>& overrides) {
  std::string current = "job file";
  try {
    std::size_t budget = kMaxNodes;
    Tree root = ToTree(YAML::Load(std::string(yaml)), 0, &budget);
    for (const std::string& override : overrides) {
      current = "override '" + override + "'";
      MUSTER_RETURN_IF_ERROR(Apply(override, &root));
    }
    if (root.kind != Tree::Kind::kMap)
      return InvalidArgument("the job file is no map of keys such as name: and train:");
    std::string out;
    WriteBlock(root, 0, &out);
    return out;
  } catch (const YAML::Exception& error) {
    return InvalidArgument(current + ": is no valid YAML: " + error.msg);
  }
}

}  // namespace muster
