// Fields: what a configuration says, under the same names for every tool, and the job that is made
// of it. The names are those of transformers' TrainingArguments and of TRL where they have one.
//
// Owned by one migration; one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/migrate/migration.h"

namespace muster::migrate {

// Rows that one entry of a configuration names.
struct RowSource {
  std::string path = {};    // a file, or a data set of the Hub
  std::string subset = {};  // of a data set of the Hub
  std::string split = "train";
  std::string form = {};         // "alpaca": prompts in Stanford Alpaca's words; else as they are
  std::string rename = {};       // of columns, as Python writes a dict; empty: none
  std::string turn_rename = {};  // of the keys and roles of messages: "{'from': 'role'}"
  std::string column = {};       // that has the messages, if another than "messages"
  std::string limit = {};        // so many rows at most; empty: all
};

class Fields {
 public:
  Fields(Document document, const VerdictTable& table, Migration* out);

  // A verdict on every key; what is taken becomes fields.
  void Apply();

  const Document& document() const { return document_; }
  Migration& out() { return *out_; }

  // The value of a field, of a key or the tool's default; nothing: neither.
  std::optional<std::string> Get(std::string_view field) const;
  std::string GetOr(std::string_view field, const std::string& otherwise) const;
  bool On(std::string_view field) const;
  std::optional<double> Number(std::string_view field) const;
  std::vector<std::string> List(std::string_view field) const;
  bool Given(std::string_view field) const { return given_.contains(std::string(field)); }

  // What a tool's own code makes of other fields.
  void Put(const std::string& field, const std::string& value);
  // A verdict on the keys that gave a field: on those that nothing has used so far; on all of them.
  void Explain(std::string_view field, const std::string& reason);
  void Refuse(std::string_view field, const std::string& reason);
  void Remark(const std::string& text) { out_->remarks.push_back(text); }

  // A key of the job file, and the fields that it comes from. The value is YAML.
  void Set(const std::string& job_key, const std::string& yaml,
           std::initializer_list<std::string_view> from = {});
  void SetText(const std::string& job_key, const std::string& text,
               std::initializer_list<std::string_view> from = {});
  // The field's number or whole number, where there is one; refused where it is none.
  void SetNumber(const std::string& job_key, std::string_view field, bool whole = false);

  const std::vector<std::string>& settings() const { return settings_; }
  std::vector<RowSource> rows;
  std::vector<RowSource> eval_rows;

 private:
  struct GivenField {
    std::string value;
    std::vector<std::string> elements;
    std::vector<std::size_t> findings;  // places in out_->findings
  };
  void Judge(const Entry& entry);
  void Take(const Entry& entry, const Rule& rule);
  void Note(std::string_view field, Verdict verdict, const std::string& reason);

  Document document_;
  const VerdictTable& table_;
  Migration* out_;
  std::map<std::string, GivenField> given_;
  std::map<std::string, std::string> defaults_;
  std::vector<std::string> settings_ = {};
};

// Letters, digits and '-' of a text that is no job's name; `otherwise` where nothing fits.
std::string JobName(std::string text, const std::string& otherwise);

// In double quotes, as JSON, YAML and Python read it.
std::string Quoted(const std::string& text);

// The job of a training configuration, once a tool's own code has been at the fields.
void ComposeTraining(Fields& fields);
// What is to be done before the job is submitted, so that its rows are there; empty: nothing.
std::string RowRecipe(const std::vector<RowSource>& rows);

// What is particular to a tool: nothing for those whose fields say it all.
void PrepareAxolotl(Fields& fields);
void PrepareLlamaFactory(Fields& fields);
void PrepareTorchtune(Fields& fields);
void PrepareTrl(Fields& fields);

// A command job of Determined's experiment.
void ComposeExperiment(Fields& fields);

}  // namespace muster::migrate
