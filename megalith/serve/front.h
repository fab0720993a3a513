// The front of a server: which request is answered by what. Between sockets (http_server.h) and an engine
// (engine/token_service.h), and tested without either.
//
// Everything is called on the server's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "megalith/engine/token_service.h"
#include "megalith/serve/access.h"
#include "megalith/serve/asked.h"
#include "megalith/serve/generations.h"
#include "megalith/serve/http.h"
#include "megalith/serve/metrics.h"
#include "megalith/serve/served_model.h"
#include "megalith/serve/workers.h"

namespace megalith::serve {

struct FrontOptions {
  AccessOptions access = {};
  GenerationsOptions generations = {};
  bool shows_slots = false;
  int tokenizer_threads = 1;
  size_t most_preparing = 1024;  // requests that may wait for those threads
  LogSink log = {};              // nothing: no log
};

class Front {
 public:
  /// `post` runs work on the server's thread, soon; it is called from others.
  Front(FrontOptions options, std::function<void(std::function<void()>)> post);
  ~Front();
  Front(const Front&) = delete;

  void handle(std::shared_ptr<Exchange> exchange);
  /// What is said of what never became a request (HttpServerOptions::refusal).
  HttpReply refusal(int status, const std::string& message);
  void tick() { generations_.tick(); }
  void set_connections(std::function<int()> connections) { connections_ = std::move(connections); }

  /// The model is there: from now on requests are taken. Both must outlive this, but for the service's sinks.
  void ready(const ServedModel& model, engine::TokenService& service, int64_t num_slots);
  /// No longer ready, and no request for text is taken; `on_idle` is called once those at work have ended.
  void drain(std::function<void()> on_idle);
  /// Ends those at work with an error.
  void abort_all() { generations_.abort_all(); }

 private:
  struct Route;
  static const std::vector<Route>& routes();

  void dispatch(Asked& asked);
  void reply(const Asked& asked, HttpReply reply, const std::optional<LogDetails>& details = {});
  void log(const Asked& asked, int status, const std::optional<LogDetails>& details);
  void beside(const Asked& asked, std::string (*work)(const ServedModel& model, std::string_view body));
  const ServedModel& model() const;

  void health(Asked& asked);
  void models(Asked& asked);
  void one_model(Asked& asked);
  void metrics(Asked& asked);
  void page(Asked& asked);
  void openapi(Asked& asked);
  void version(Asked& asked);
  void load(Asked& asked);
  void props(Asked& asked);
  void slots(Asked& asked);

  FrontOptions options_;
  Access access_;
  std::function<void(std::function<void()>)> post_;
  std::function<int()> connections_ = [] { return 0; };
  Metrics metrics_;
  const ServedModel* model_ = nullptr;
  engine::TokenService* service_ = nullptr;
  bool is_draining_ = false;
  int64_t created_;  // seconds since 1970
  Generations generations_;
  // The last ones: their threads work on what is above, and those of the first give the others work.
  Workers compilers_, workers_;
};

}  // namespace megalith::serve
