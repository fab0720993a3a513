// The batch block: the small tables in which the requests of a running kernel live. The host fills them in before the
// launch; from then on the `advance` task of each iteration owns them: it takes in the sampled tokens, ends requests,
// and decides which rows the next iteration works on. Everything else only reads. Plain i32 and f32 tensors of the
// graph, so dependences and verifier cover them like any other.
//
//   requests       i32 [N, kRequestFields]  one line per request, fields below
//   history        i32 [N, S]       all tokens of each request, prompt first; behind them drafts (kernels/drafts.h)
//   sampling_f32   f32 [N, 8]       SamplingFloat
//   sampling_i32   i32 [N, 8]       SamplingInt
//   stop_tokens    i32 [E]          token ids that end a request, unless it ignores them; unused places are -1
//   own_stops      i32 [N, 16]      further ones of a request that has some (kOwnStops); unused places are -1
//   bias_tokens    i32 [N, 300]     token ids of which a request wants other logits (kBiases): each once; behind them its bad words
//   biases         f32 [N, 300]     what is added to them; of the last token of a bad word how many tokens the word has
//   masks          i32 [N, M]       a bit for each token that may come (kMasked), M = ceil(V / 32)
//   mask_lengths   i32 [N]          of each the number of tokens behind which it holds; shared with the host, as the mailbox is
//   page_table     i32 [N, Q]       the KV pages of each request
//   counts         i32 [6]          CountField: rows and samples of this iteration, and when the run ends
//   row_token, row_request, row_position   i32 [T]   one entry per row of this iteration
//   row_start      i32 [T]          the first position of the row's request in this iteration
//   sample_row, sample_request             i32 [R]   the rows after which a token is sampled, and whose they are
//   stop           i32 [1]          1: the loop ends
//   mailbox        a runtime::Mailbox
//
// R is N, or T where that is less: a kernel of fewer rows than there may be requests takes part in a run while few tokens
// wait; with drafts as many as the rows that they may take. Tokens that wait are those of active requests that are known and
// not worked through: one of each request behind its prompt, and its drafts. A kernel ends before an iteration for which more or fewer wait than it was told (kLeast, kMaxWaiting). It lays
// out no rows then; the host does, for the kernel that goes on (engine/regimes.h).
//
// Requests may come while a kernel runs (commands, runtime/mailbox.h): the host writes the prompt, the pages and the
// sampling of a place that nobody has, and then has `advance` put its line into `requests`.
//
// Freestanding: shared by host and kernels.
#pragma once

namespace megalith::batch {

enum RequestField {
  kState,   // RequestState
  kLength,  // tokens known: prompt and sampled ones
  kDone,    // tokens worked through: their keys and values are in the cache. Drafts count while they are worked on
  kLimit,   // length at which the request ends; a command may raise it
  kReason,  // FinishReason, once finished
  kFlags,  // RequestFlag bits; above them how many top tokens it is told of with each token (kTopShift), and how many drafts
           // fewer than there may be it has for now (kFewerDraftsShift)
  kPrompt,  // tokens of the prompt: presence, frequency and kMinTokens count those after it
  kLast,    // the token that was sampled last, once there is one; it may be before the request began, in another place
  kRequestFields = 8
};

enum RequestState { kEmpty = 0, kActive = 1, kFinished = 2 };
enum RequestFlag {
  kIgnoreStop = 1,      // stop_tokens do not end it
  kOwnStops = 2,        // its own_stops do, too
  kPromptLogprobs = 4,  // a sample stands behind each of its rows (kernels/known_tokens.h)
  kNoDrafts = 8,        // none are found for it
  kGuessed = 16,        // behind its last token stands a draft that nobody works on: was it right? (kernels/drafts.h)
};
[[maybe_unused]] constexpr int kTopShift = 8, kTopMask = 0xff, kFewerDraftsShift = 16, kFewerDraftsMask = 0xf;
enum FinishReason { kNotFinished = 0, kStopToken = 1, kLengthLimit = 2, kCancelled = 3 };
enum SamplingFloat {
  kTemperature,        // 0: the likeliest token
  kTopP,               // 1: all
  kMinP,               // 0: all
  kRepetitionPenalty,  // of tokens in the text, prompt included: positive logits are divided by it, others multiplied;
                       // 1 (or 0, as in an empty place): none
  kPresencePenalty,    // subtracted from the logits of tokens that were made already
  kFrequencyPenalty,   // subtracted once for each time that they were
  kSamplingFloats = 8
};
enum SamplingInt {
  kTopK,
  kSeedLow,
  kSeedHigh,
  kExtras,     // SamplingExtra bits: without them nobody reads what stands behind
  kMinTokens,  // before so many new tokens none that would end the request is drawn
  kBiases,     // tokens of the request's lines of bias_tokens and biases
  kBadTokens,  // behind them, of bad words: of each the last token is not drawn where those in front of it were made
  kSamplingInts = 8
};
enum SamplingExtra {
  kLogprobs = 1,  // how likely each token was is worked out, too
  kEdits = 2,     // logits are edited before penalties: by kMinTokens, kBiases and kBadTokens
  kOnly = 4,      // and only the tokens of bias_tokens are drawn
  kMasked = 16,   // its tokens are those of its line of masks, for which `sampling` waits
  kTop = 8,       // and the top tokens, by the model's own logits, are listed: kFlags says how many
};
/// Stop tokens that a request may have of its own, and tokens of which it may want other logits: OpenAI's limit.
[[maybe_unused]] constexpr int kMaxOwnStops = 16, kMaxBiases = 300;
/// Most probable tokens that it may be told of with each of its own, likewise.
[[maybe_unused]] constexpr int kMaxTop = 20;
/// How many a request is told of, by its flags; of flags that are not sound as many as there may be.
[[maybe_unused]] constexpr int top_tokens_of(int flags) {
  const int count = flags >> kTopShift & kTopMask;
  return count > kMaxTop ? kMaxTop : count;
}
/// Requests that have one row in an iteration have them spread over slices of so many rows (kernels/row_order.h).
[[maybe_unused]] constexpr int kSliceRows = 32;

enum CountField {
  kRows,
  kSamples,
  kLeast,       // the run ends before an iteration for which so many tokens wait or fewer: 0, when there are none left
  kMaxWaiting,  // and before one for which more than so many wait
  kWaiting,     // tokens that waited before this iteration
  kQuiet,  // iterations since there was a draft, up to kPatience: so long drafts count for kLeast that might have been
  kCountFields = 6
};
/// Loads with which a kernel goes on: more than `least` tokens wait, and at most `most`.
struct LoadRange {
  int least = 0, most = 0x7fffffff;
};
[[maybe_unused]] constexpr int kPatience = 16;
/// Drafts of a request, at most.
[[maybe_unused]] constexpr int kMaxDrafts = 15;
/// Tokens that are compared to find drafts, at most (kernels/drafts.h).
[[maybe_unused]] constexpr int kLongestMatch = 64;

}  // namespace megalith::batch
