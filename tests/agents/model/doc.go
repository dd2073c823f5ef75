// Model is a language model's service whose every word is in a script: what the tests of real agents put in the place of
// Anthropic, OpenAI or Google. It speaks their streaming protocols as far as the agents use them, and it is strict: a request
// that the script does not expect is answered with status 400 and recorded as unexpected, and the test fails with it.
//
//	agent                                      model
//	  | POST the conversation, prompt last  ->   |   the first answer: text and calls of the agent's own tools
//	  | <- server-sent events                    |
//	  | runs the tools                           |
//	  | POST the conversation, results last ->   |   the answer that the script has after that one, for such a result
//	  | <- ...                                   |
//
// It keeps no state. Which answer comes next is in the request itself: the id of a tool call carries the name of the answer
// that made it, so a repeated request gets the same answer again.
//
// Standard output is the record, one JSON object a line (type record): "ready" with the address when it listens, then each
// request with its headers and its whole body before it is answered. A test on the far side of `agentos exec` reads it there;
// no file is written.
//
// What it does not do: judge the request beyond what the script says, check keys, count tokens truly, or end by itself.
//
// Sources: the Messages API (docs.anthropic.com/en/api/messages-streaming), the Responses API
// (platform.openai.com/docs/api-reference/responses-streaming), the Gemini API (ai.google.dev/api/generate-content), and what
// the agents were seen to send.
package main
