// main() of every GoogleTest program. Many cases share the process, so a case that leaves the
// process changed fails (and what it changed is put back), and each case is reported while it runs:
// tests/support/run_cases.py knows then which case was under way when the process died or hung.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr char kReportVariable[] = "MUSTER_CASE_REPORT_FD";
constexpr int kLimits[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_CORE, RLIMIT_AS, RLIMIT_NPROC};

using Environment = std::map<std::string, std::string>;

Environment ReadEnvironment() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != text.npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// What cases of one process share, and what a case can change without its destructors noticing.
class ProcessState {
 public:
  ProcessState() : environment_(ReadEnvironment()), mask_(::umask(0)) {
    ::umask(mask_);
    std::error_code gone;  // an empty path then, which no case can have made
    directory_ = std::filesystem::current_path(gone);
    for (std::size_t i = 0; i < limits_.size(); ++i) ::getrlimit(kLimits[i], &limits_[i]);
    for (int number = 1; number < kSignals; ++number)
      ::sigaction(number, nullptr, &actions_[number]);
  }

  // What is no longer as it was, in words; puts it back.
  std::vector<std::string> Restore() const {
    const ProcessState now;
    std::vector<std::string> changed;
    RestoreEnvironment(now.environment_, &changed);
    if (now.mask_ != mask_) {
      ::umask(mask_);
      changed.push_back("the umask");
    }
    if (now.directory_ != directory_) {
      std::error_code failed;
      std::filesystem::current_path(directory_, failed);
      changed.push_back("the working directory");
    }
    for (std::size_t i = 0; i < limits_.size(); ++i) {
      if (now.limits_[i].rlim_cur == limits_[i].rlim_cur) continue;
      ::setrlimit(kLimits[i], &limits_[i]);
      changed.push_back("resource limit " + std::to_string(kLimits[i]));
    }
    for (int number = 1; number < kSignals; ++number) {
      // Libraries ignore SIGPIPE at their first use, once for the process.
      if (number == SIGPIPE || now.actions_[number].sa_handler == actions_[number].sa_handler)
        continue;
      ::sigaction(number, &actions_[number], nullptr);
      changed.push_back("the action of signal " + std::to_string(number));
    }
    return changed;
  }

 private:
  static constexpr int kSignals = 32;

  void RestoreEnvironment(const Environment& now, std::vector<std::string>* changed) const {
    for (const auto& [name, value] : now) {
      // Libraries leave variables of theirs, once for the process.
      if (environment_.contains(name) || !name.starts_with("MUSTER_")) continue;
      ::unsetenv(name.c_str());
      changed->push_back("variable " + name);
    }
    for (const auto& [name, value] : environment_) {
      const auto found = now.find(name);
      if (found != now.end() && found->second == value) continue;
      ::setenv(name.c_str(), value.c_str(), 1);
      changed->push_back("variable " + name);
    }
  }

  Environment environment_;
  mode_t mask_;
  std::filesystem::path directory_;
  std::array<rlimit, std::size(kLimits)> limits_{};
  std::array<struct sigaction, kSignals> actions_{};
};

std::string NameOf(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

std::string OnOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// A line for each begin and end: "begin NAME", "skip REASON", "end RESULT NAME", at last "done".
class CaseReporter : public testing::EmptyTestEventListener {
 public:
  explicit CaseReporter(int descriptor) : descriptor_(descriptor) {}

  void OnTestStart(const testing::TestInfo& test) override { Write("begin " + NameOf(test)); }

  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (part.skipped()) Write("skip " + OnOneLine(part.message()));
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    Write(std::string("end ") +
          (result.Failed()    ? "failed "
           : result.Skipped() ? "skipped "
                              : "passed ") +
          NameOf(test));
  }

  void OnTestProgramEnd(const testing::UnitTest&) override { Write("done"); }

 private:
  void Write(std::string line) const {
    line += '\n';
    // A reader that is gone has ended the run already.
    [[maybe_unused]] const auto written = ::write(descriptor_, line.data(), line.size());
  }

  int descriptor_;
};

class CaseIsolation : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override { before_ = ProcessState(); }

  void OnTestEnd(const testing::TestInfo&) override {
    for (const std::string& what : before_.Restore()) {
      ADD_FAILURE() << "the case leaves " << what
                    << " changed; the cases after it share the process";
    }
  }

 private:
  ProcessState before_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  // The end of a case reaches the listeners in reverse order: a case is judged before it is
  // reported.
  if (const char* descriptor = std::getenv(kReportVariable)) {
    const int report = std::atoi(descriptor);
    ::unsetenv(kReportVariable);
    ::fcntl(report, F_SETFD, FD_CLOEXEC);
    listeners.Append(new CaseReporter(report));
  }
  listeners.Append(new CaseIsolation);
  return RUN_ALL_TESTS();
}
