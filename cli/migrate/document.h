// A foreign configuration as a flat list of keys.
//
// Maps become dotted keys. A list of scalars is one entry; a list of maps gives the entries of each
// under the list's key, with the place of the map. Value types; pure; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster::migrate {

struct Entry {
  std::string key = {};   // dotted: "datasets.path"
  std::string text = {};  // of the scalar; a list's elements with ", " between; null: ""
  int line = 0;
  int place = 0;                           // of the map in its list, else 0
  bool is_null = false;                    // also an empty list or map
  std::vector<std::string> elements = {};  // of a list

  std::string lower() const;
};

// Text as a number, the whole of it.
std::optional<double> NumberIn(const std::string& text);
// true, yes, false, no, in any case.
std::optional<bool> BooleanIn(const std::string& text);

struct Document {
  std::string file = {};  // as messages name it
  std::vector<Entry> entries;
  // Maps that the flat list does not say as they are, as YAML in one line: by top-level key.
  std::map<std::string, std::string> sections;

  bool Has(std::string_view key) const;
  const Entry* Find(std::string_view key, int place = 0) const;
};

// YAML or JSON, one map. kInvalidArgument "FILE:LINE: what is wrong".
Result<Document> ReadDocument(std::string_view text, const std::string& file);

// "--key value", "--key=value", "--switch" as keys; the words behind a program's own name.
Result<Document> ReadFlags(const std::vector<std::string>& words, const std::string& file);

// ${key} in values becomes the value of that key.
void Interpolate(Document* document);

// A shell script or command: the words of the command that `is_it` finds first, with variables that
// earlier lines or words set put in; those words set its environment. Nothing: no such command.
struct ShellCommand {
  std::vector<std::string> words = {};
  std::map<std::string, std::string> environment;
  std::vector<std::string> other_lines = {};  // commands that are not it
};
std::optional<ShellCommand> FindCommand(std::string_view script,
                                        bool (*is_it)(const std::vector<std::string>& words));

}  // namespace muster::migrate
