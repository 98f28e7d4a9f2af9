// A rank that takes assignments over its control socket and executes ON_ASSIGN of each assignment:
// words separated by spaces. Messages to it are written to standard output, line by line.
//
//   first_step  park  segment:NAME  drop:NAME  stale:GENERATION (a note of another generation)
//   exit:CODE   deaf (answers no `park`)   child (leaves a process in a session of its own)
// Locks of devices are kept until the next assignment.

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/control_pipe/packet_socket.h"
#include "common/control_pipe/trainer_protocol.h"

namespace {

using Json = nlohmann::json;
using muster::Deadline;
using muster::PacketSocket;

constexpr std::chrono::hours kForever{1};

class Rank {
 public:
  Rank() : control_(muster::UniqueFd(std::atoi(std::getenv(muster::kControlFdVariable)))) {}

  int Run() {
    Send("standby_ready", {});
    // For tests that wait until it has reported.
    ::prctl(PR_SET_NAME, "told-ready");
    for (;;) {
      auto packet = control_.Receive(Deadline::After(kForever));
      if (!packet.ok()) return EXIT_FAILURE;
      const Json message = Json::parse(packet->data);
      const std::string type = message.at("type");
      if (type == "assign") {
        Assign(message, std::move(packet->fds));
      } else if (type == "segment") {
        char text[64] = {};
        if (::pread(packet->fds.at(0).get(), text, sizeof text - 1, 0) < 0) return EXIT_FAILURE;
        segments_ += " " + message.at("name").get<std::string>() + "=" + text;
      } else if (type == "park" && !deaf_) {
        Say("told to park: " + message.at("reason").get<std::string>());
        Send("parked", {{"step", 7}});
      } else {
        Say("got " + packet->data);
      }
    }
  }

 private:
  static void Say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  void Send(const std::string& type, Json body, int descriptor = -1) {
    body["type"] = type;
    if (generation_ > 0 && !body.contains("generation")) body["generation"] = generation_;
    std::vector<int> descriptors;
    if (descriptor >= 0) descriptors.push_back(descriptor);
    if (!control_.Send(body.dump(), descriptors, Deadline::After(kForever)).ok())
      std::exit(EXIT_FAILURE);
  }

  void Assign(const Json& message, std::vector<muster::UniqueFd> descriptors) {
    ::dup2(descriptors.at(0).get(), STDOUT_FILENO);
    ::dup2(descriptors.at(0).get(), STDERR_FILENO);
    generation_ = message.at("generation");
    std::map<std::string, std::string> environment;
    for (const std::string entry : message.at("environment"))
      environment[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    int listening = 0;
    socklen_t size = sizeof listening;
    if (descriptors.size() > 1)
      ::getsockopt(descriptors[1].get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size);
    locks_.clear();
    for (std::size_t i = 0; i < descriptors.size(); ++i)
      if (message.at("descriptors").at(i) == "lock") locks_.push_back(std::move(descriptors[i]));
    const std::string token = message.at("rendezvous_token");
    Say("assigned g" + std::to_string(generation_) + " rank " + environment["RANK"] +
        (listening != 0 ? " listening" : "") + (token.empty() ? "" : " token " + token) +
        segments_);
    segments_.clear();
    deaf_ = false;
    std::istringstream words(environment["ON_ASSIGN"]);
    for (std::string word; words >> word;)
      Do(word.substr(0, word.find(':')), word.substr(word.find(':') + 1));
    Send("formed", Json::object());
  }

  void Do(const std::string& what, const std::string& argument) {
    if (what == "first_step") {
      Send("first_step", {{"step", 1}});
    } else if (what == "park") {
      Send("parked", {{"step", 7}});
    } else if (what == "segment") {
      const muster::UniqueFd file(::memfd_create(argument.c_str(), MFD_CLOEXEC));
      const std::string content = "of-" + argument;
      if (::write(file.get(), content.data(), content.size()) < 0) std::exit(EXIT_FAILURE);
      Send("segment", {{"name", argument}}, file.get());
    } else if (what == "drop") {
      Send("drop_segment", {{"name", argument}});
    } else if (what == "stale") {
      Send("note", {{"generation", std::stoll(argument)}, {"message", "stale"}});
    } else if (what == "exit") {
      std::exit(std::stoi(argument));
    } else if (what == "deaf") {
      deaf_ = true;
    } else if (what == "child") {
      LeaveChild();
    }
  }

  static void LeaveChild() {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setsid();
      ::execl("/bin/sleep", "sleep", "60", nullptr);
      ::_exit(127);
    }
    Say("child " + std::to_string(pid));
  }

  PacketSocket control_;
  std::vector<muster::UniqueFd> locks_;
  std::int64_t generation_ = 0;
  bool deaf_ = false;
  std::string segments_;
};

}  // namespace

int main() { return Rank().Run(); }
