// Prints the pods of all clusters of a hub, and their changes. Runs in Node 20; `query` and `follow` also in browsers.
//
//     HUB=https://hub.example.com:7080 TOKEN=… node follow.mjs

const HUB = process.env.HUB ?? 'http://127.0.0.1:7080';
const MARKS = { added: '+', updated: '~', deleted: '-' };

function ask(path, parameters, headers) {
  const token = process.env.TOKEN;
  const authorization = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(`${HUB}${path}?${new URLSearchParams(parameters)}`, { headers: { ...headers, ...authorization } });
}

/** Returns the answer of a query. */
async function query(resource, q) {
  const answer = await (await ask('/v1/query', { resource, q })).json();
  if (answer.error) throw new Error(answer.error);
  return answer;
}

/** Yields Server-Sent Events of a response as {id, event, data}. A browser's EventSource cannot send a token. */
async function* events(response) {
  let text = '';
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const blocks = text.split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const found = { event: 'message' };
      for (const line of block.split('\n')) {
        const [, field, value] = line.match(/^(\w*): ?(.*)$/) ?? [];
        if (field) found[field] = field === 'data' && found.data ? `${found.data}\n${value}` : value;
      }
      yield found;
    }
  }
}

/** Yields CloudEvents: the present objects, then changes without a gap, also over broken connections. */
async function* follow(resource, parameters = {}) {
  let position;
  for (;;) {
    try {
      const headers = { Accept: 'text/event-stream', ...(position && { 'Last-Event-ID': position }) };
      const response = await ask('/v1/events', { resource, initial: 'replay', ...parameters }, headers);
      if (response.ok) {
        for await (const { id, event, data } of events(response)) {
          position = id ?? position;
          if (data) yield { name: event, ...JSON.parse(data) };
        }
      } else if (![429, 503].includes(response.status)) {
        throw new RangeError((await response.json()).error);
      }
    } catch (error) {
      if (error instanceof RangeError) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

for (const { value, count } of (await query('pods', 'count by cluster')).groups) console.log('#', value, count);
for await (const { name, type, data } of follow('pods')) {
  if (name === 'expired') {
    // Changes are missing: the present objects follow.
    console.log('# starting anew:', data.message);
  } else if (name === 'message') {
    const mark = data.initial ? '=' : MARKS[type.split('.').at(-2)];
    console.log(mark, data.cluster, `${data.namespace}/${data.name}`);
  }
}
