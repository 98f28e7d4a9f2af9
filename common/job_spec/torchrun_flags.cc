#include "common/job_spec/torchrun_flags.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/job_spec/torchrun_table.h"

namespace muster {
namespace {

std::string Dashed(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

std::string VariableOf(std::string_view name) {
  std::string variable = "PET_";
  for (const char c : name)
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

Status Refused(const std::string& what) {
  return InvalidArgument(what + "; 'muster run --help' lists torchrun's flags");
}

// The flag of this name, or the only one that begins with it.
Result<const TorchrunFlag*> FindLong(const std::string& given) {
  const std::string name = Dashed(given);
  const TorchrunFlag* found = nullptr;
  for (const TorchrunFlag& flag : TorchrunFlagTable()) {
    if (flag.name == name) return &flag;
    if (!flag.name.starts_with(name)) continue;
    if (found != nullptr) {
      return Refused("--" + given + " may be --" + std::string(found->name) + " or --" +
                     std::string(flag.name));
    }
    found = &flag;
  }
  if (found == nullptr) return Refused("--" + given + " is no flag of torchrun");
  return found;
}

Result<const TorchrunFlag*> FindShort(char letter) {
  for (const TorchrunFlag& flag : TorchrunFlagTable()) {
    if (flag.letter == letter) return &flag;
  }
  return Refused(std::string("-") + letter + " is no flag of torchrun");
}

// As argparse has it: what begins with a dash is a flag, unless it is a negative number.
bool IsValue(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return true;
  return word.find_first_not_of("0123456789.", 1) == std::string::npos;
}

class Reader {
 public:
  Reader(const std::vector<std::string>& words, const std::vector<std::string>& before,
         TorchrunFlags* out)
      : words_(words), before_(before), out_(*out) {}

  Status Read() {
    for (; next_ < words_.size(); ++next_) {
      const std::string& word = words_[next_];
      if (word == "--") {
        ++next_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      MUSTER_RETURN_IF_ERROR(word[1] == '-' ? ReadLong(word.substr(2)) : ReadShort(word));
    }
    if (next_ >= words_.size()) {
      return Refused(
          "no script is named; it stands behind torchrun's flags, and its own behind it");
    }
    out_.script = words_[next_];
    out_.script_arguments.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_) + 1,
                                 words_.end());
    return OkStatus();
  }

 private:
  Status ReadLong(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (std::find(before_.begin(), before_.end(), name) != before_.end())
      return Refused("--" + name + " is a flag of muster run, and stands before torchrun's flags");
    MUSTER_ASSIGN_OR_RETURN(const TorchrunFlag* flag, FindLong(name));
    if (equals == std::string::npos) return Take(*flag, "--" + name);
    if (!flag->has_value) return Refused("--" + name + " takes no value");
    out_.values[std::string(flag->name)] = text.substr(equals + 1);
    return OkStatus();
  }

  // "-m", "-r 3", "-r3", "-r=3", "-mt3".
  Status ReadShort(const std::string& word) {
    for (std::size_t at = 1; at < word.size(); ++at) {
      MUSTER_ASSIGN_OR_RETURN(const TorchrunFlag* flag, FindShort(word[at]));
      const bool last = at + 1 == word.size();
      if (!flag->has_value || last) {
        MUSTER_RETURN_IF_ERROR(Take(*flag, std::string("-") + word[at]));
        continue;
      }
      out_.values[std::string(flag->name)] = word.substr(at + (word[at + 1] == '=' ? 2 : 1));
      return OkStatus();
    }
    return OkStatus();
  }

  // A switch, or a flag whose value is the next word.
  Status Take(const TorchrunFlag& flag, const std::string& as_given) {
    std::string& value = out_.values[std::string(flag.name)];
    if (!flag.has_value) {
      value = "1";
      return OkStatus();
    }
    if (next_ + 1 >= words_.size() || !IsValue(words_[next_ + 1])) {
      return Refused(as_given + " needs a value");
    }
    value = words_[++next_];
    return OkStatus();
  }

  const std::vector<std::string>& words_;
  const std::vector<std::string>& before_;
  TorchrunFlags& out_;
  std::size_t next_ = 0;
};

}  // namespace

Result<TorchrunFlags> ParseTorchrunFlags(const std::vector<std::string>& arguments,
                                         const std::map<std::string, std::string>& environment,
                                         const std::vector<std::string>& before) {
  TorchrunFlags flags;
  for (const TorchrunFlag& flag : TorchrunFlagTable()) {
    std::string& value = flags.values[std::string(flag.name)];
    value = flag.has_value ? flag.otherwise : "0";
    const auto given = environment.find(VariableOf(flag.name));
    if (!flag.has_variable || given == environment.end()) continue;
    value = flag.has_value ? given->second : given->second == "0" ? "0" : "1";
  }
  MUSTER_RETURN_IF_ERROR(Reader(arguments, before, &flags).Read());
  return flags;
}

}  // namespace muster
