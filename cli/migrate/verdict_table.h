// VerdictTable: what becomes of every key of a tool's configuration, read from cli/migrate/tables.
//
//   marks KEY...                 a file with one of these may be the tool's
//   default FIELD VALUE          what the tool does where no key gives the field
//   take FIELD KEY... [: a=b ...] [! REASON]
//                                the field gets the value, `a` as `b` ("null" too); with a reason,
//                                any other value is refused
//   gather FIELD KEY...          the same for keys whose values belong together, and may differ
//   explain REASON               the keys in the indented lines below mean nothing here
//   refuse REASON                those below would change what is trained; a key's own values
//   behind
//                                it (KEY=a|b) and what says "off" mean nothing
//   versions                     keys from here on are of other versions of the tool
//
// A key that is explained or refused stands for all below it as well, "section.*" for those alone;
// what is named counts first. Constant data; any thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/migrate/document.h"

namespace muster::migrate {

enum class Verdict { kTaken, kExplained, kRefused };

struct Rule {
  Verdict verdict = Verdict::kTaken;
  std::string field = {};   // of kTaken
  std::string reason = {};  // of the others; of values not listed
  std::vector<std::pair<std::string, std::string>> words =
      {};                             // of kTaken: value, and what it becomes
  std::vector<std::string> off = {};  // of kRefused: further values
  bool gathers = false;               // of kTaken
  bool other_version = false;
};

class VerdictTable {
 public:
  // Aborts on a malformed table: all are part of the program, and a test reads them.
  // Where both have a line for a key or a default, that of `text` counts.
  explicit VerdictTable(std::string_view text, std::string_view shared = {});

  // Nothing for a key that is in no line.
  const Rule* Find(const std::string& key) const;
  std::vector<std::string> keys() const;
  const std::map<std::string, Rule>& rules() const { return rules_; }
  const std::map<std::string, std::string>& defaults() const { return defaults_; }
  bool Marks(const Document& document) const;

 private:
  void Read(std::string_view text);
  void ReadTake(const std::string& line, bool other_version);
  void Add(const std::string& key, Rule rule);

  std::map<std::string, Rule> rules_;
  std::map<std::string, std::string> defaults_;
  std::vector<std::string> marks_ = {};
  std::size_t own_ = 0;  // rules of the first text, once that has been read
};

// Whether a value of a key that is refused says that the feature is off.
bool IsOff(const Entry& entry, const Rule& rule);

struct EmbeddedTable {
  std::string_view name;  // "axolotl.txt"
  std::string_view text;
};
// The generated embedded_tables.cc defines it.
std::span<const EmbeddedTable> EmbeddedTables();

}  // namespace muster::migrate
