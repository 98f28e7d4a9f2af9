#include <ATen/Parallel.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/hub_id.h"
#include "trainer/verbs/chat_session.h"
#include "trainer/verbs/text_generator.h"
#include "trainer/verbs/text_rows.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

std::atomic<bool> interrupt_asked{false};

// The first interrupt ends an answer; between answers it ends the program, as it would anyhow.
void InstallInterrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    if (interrupt_asked.exchange(true)) std::_Exit(128 + SIGINT);
  };
  ::sigaction(SIGINT, &action, nullptr);
}

GenerationSettings SettingsOf(const GenerateOptions& options) {
  return {.sampling = {.temperature = options.temperature,
                       .top_k = options.top_k,
                       .top_p = options.top_p,
                       .seed = options.seed},
          .max_new_tokens = options.max_new_tokens,
          .stops = options.stops};
}

std::string ReadAll(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void PrintJson(const Generated& made) {
  const double rate = made.seconds > 0 && made.ids.size() > 1
                          ? static_cast<double>(made.ids.size() - 1) / made.seconds
                          : 0;
  const nlohmann::ordered_json json = {{"text", made.text},
                                       {"finish_reason", FinishReasonName(made.reason)},
                                       {"prompt_tokens", made.prompt_tokens},
                                       {"new_tokens", made.ids.size()},
                                       {"ids", made.ids},
                                       {"prompt_seconds", made.prompt_seconds},
                                       {"seconds", made.seconds},
                                       {"tokens_per_second", rate}};
  std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

Result<ChatSession> SessionOf(const GenerateOptions& options, TextGenerator& generator) {
  MUSTER_ASSIGN_OR_RETURN(
      ChatTemplate chat_template,
      ChooseChatTemplate(options.chat_template, options.model, generator.tokenizer()));
  return ChatSession(generator, std::move(chat_template), SettingsOf(options), options.system);
}

Result<Generated> Answer(const GenerateOptions& options, TextGenerator& generator,
                         const TextSink& sink) {
  const std::string prompt = options.prompt ? *options.prompt : ReadAll(std::cin);
  if (!options.chat) {
    return generator.Run(generator.tokenizer().Encode(prompt, {.add_special_tokens = true}),
                         SettingsOf(options), sink);
  }
  MUSTER_ASSIGN_OR_RETURN(ChatSession session, SessionOf(options, generator));
  return session.Say(prompt, sink);
}

Status ConverseWithTerminal(const GenerateOptions& options, TextGenerator& generator) {
  MUSTER_ASSIGN_OR_RETURN(ChatSession session, SessionOf(options, generator));
  InstallInterrupt();
  std::fprintf(stderr, "a conversation with %s; /help says what there is\n", options.model.c_str());
  Converse(session, std::cin, std::cout, [] { return interrupt_asked.exchange(false); });
  return OkStatus();
}

Status AnswerAll(const GenerateOptions& options, TextGenerator& generator) {
  std::vector<std::string> texts;
  MUSTER_RETURN_IF_ERROR(ForEachText(options.prompts == "-" ? "" : options.prompts, "prompt",
                                     [&](std::string text) { texts.push_back(std::move(text)); }));
  GenerationSettings settings = SettingsOf(options);
  std::vector<std::vector<std::int32_t>> prompts;
  if (options.chat) {
    MUSTER_ASSIGN_OR_RETURN(const ChatSession session, SessionOf(options, generator));
    settings = session.settings();
    for (const std::string& text : texts) {
      MUSTER_ASSIGN_OR_RETURN(std::vector<std::int32_t> prompt, session.PromptOf(text));
      prompts.push_back(std::move(prompt));
    }
  } else {
    for (const std::string& text : texts)
      prompts.push_back(generator.tokenizer().Encode(text, {.add_special_tokens = true}));
  }
  return generator.RunAll(prompts, settings, static_cast<std::size_t>(options.batch),
                          [](const Generated& made) {
                            PrintJson(made);
                            return std::fflush(stdout) == 0;
                          });
}

Status Generate(const GenerateOptions& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  MUSTER_ASSIGN_OR_RETURN(TextGenerator generator,
                          TextGenerator::Load(options.model, options.type, options.adapter));
  if (!options.prompts.empty()) return AnswerAll(options, generator);
  if (options.chat && !options.prompt && !options.json && ::isatty(STDIN_FILENO) == 1) {
    return ConverseWithTerminal(options, generator);
  }
  const TextSink sink = [&](std::string_view piece) {
    if (!options.json) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    return true;
  };
  MUSTER_ASSIGN_OR_RETURN(const Generated made, Answer(options, generator, sink));
  if (options.json) {
    PrintJson(made);
  } else {
    std::printf("\n");
  }
  return OkStatus();
}

}  // namespace

int RunGenerate(const GenerateOptions& given) {
  GenerateOptions options = given;
  Result<std::string> model = ResolveModel(options.model);
  if (model.ok()) options.model = *std::move(model);
  const Status status = model.ok() ? Generate(options) : model.status();
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "muster-trainer generate: %s\n", status.message().c_str());
  return kExitBadInput;
}

}  // namespace muster
