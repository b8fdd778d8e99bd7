'use strict';
// Whatever goes wrong is said on the page itself: nobody looks into the console of a file.
const root = document.documentElement;
const trouble = [];
function complain(what) {
  trouble.push(String(what));
  root.dataset.errors = String(trouble.length);
  const box = document.getElementById('trouble');
  if (box) { box.hidden = false; box.textContent = 'This page could not draw everything: ' + trouble.join(' · '); }
}
addEventListener('error', (event) => complain(event.message || 'something could not be loaded'), true);
addEventListener('unhandledrejection', (event) => complain(event.reason));
addEventListener('securitypolicyviolation', (event) => complain('refused by its policy: ' + event.violatedDirective));

const data = JSON.parse(document.getElementById('data').textContent);
const run = data.run;
// A session of a client at the gateway: the model is not ours.
const isGateway = run.mode === 'gateway';
const $ = (id) => document.getElementById(id);

// Foreign text only ever becomes a text node.
// A path breaks behind a slash before it breaks inside a name.
function breakable(path) {
  return path.split(/(?<=\/)/).flatMap((part, i) => i ? [document.createElement('wbr'), part] : [part]);
}
function el(name, options, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(options || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') node.className = value;
    else if (key === 'on') for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (key === 'data') Object.assign(node.dataset, value);
    else if (key === 'css') for (const [property, what] of Object.entries(value)) node.style.setProperty(property, what);
    else node.setAttribute(key, value === true ? '' : value);
  }
  append(node, children);
  return node;
}
function append(node, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false || child === '') continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}
const many = (count, one, more) => number(count) + ' ' + (count === 1 ? one : more || one + 's');
const number = (value) => Number(value).toLocaleString('en');
const plainWord = (text) => String(text === null || text === undefined ? '' : text).replaceAll('_', ' ');
function span(millis) {
  if (millis === null || millis === undefined) return '';
  if (millis < 1000) return millis + ' ms';
  if (millis < 60000) return (millis / 1000).toFixed(1) + ' s';
  const seconds = Math.round(millis / 1000);
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
  if (days) return days + ' d ' + hours + ' h';
  if (hours) return hours + ' h ' + minutes + ' min';
  return minutes + ' min ' + (seconds % 60) + ' s';
}
const two = (value) => String(value).padStart(2, '0');
const clock = (at) => { const d = new Date(at); return two(d.getHours()) + ':' + two(d.getMinutes()) + ':' + two(d.getSeconds()); };
const fine = (at) => clock(at) + '.' + String(new Date(at).getMilliseconds()).padStart(3, '0');
const day = (at) => { const d = new Date(at); return d.getFullYear() + '-' + two(d.getMonth() + 1) + '-' + two(d.getDate()); };
const when = (at) => at === null || at === undefined ? '–' : day(at) + ' ' + clock(at);
// A sentence that was stored has exact instants; here they are read.
const localTimes = (text) => text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (iso) => when(Date.parse(iso)));
const stamp = (at) => el('time', { datetime: new Date(at).toISOString(), title: new Date(at).toISOString() }, when(at));
const bytes = (count) => count < 1000 ? count + ' B' : count < 1e6 ? (count / 1e3).toFixed(1) + ' kB' : (count / 1e6).toFixed(1) + ' MB';

// --- What a call's rows mean, in one look.
const RUN_TONE = { succeeded: 'ok', failed: 'bad', cancelled: 'idle', stopped: 'doubt', waiting_for_human: 'wait', running: 'idle', queued: 'idle' };
const CALL_TONE = { succeeded: 'ok', failed_definite: 'bad', failed_reported: 'bad', unknown: 'doubt', running: 'doubt', cancelled: 'idle', prepared: 'idle' };
const GLYPH = { succeeded: '✓', failed_definite: '✕', failed_reported: '✕', unknown: '?', running: '…', cancelled: '–', prepared: '○' };
const isFailed = (call) => call.status === 'failed_definite' || call.status === 'failed_reported';
const isDoubt = (call) => call.status === 'unknown' || call.status === 'running';
const wasLost = (call) => call.attempts.some((attempt) => attempt.outcome === 'lost');
const isEffect = (call) => call.class === 'external' || call.class === 'memory' || call.effect;
const KILLED = 'killed';
const lifeEnds = { in_order: 'normally', open: run.is_driven ? 'still running' : 'has not ended', not_remembered: 'not remembered' };

// One process that asks somebody at its terminal takes the run again after each answer: epochs count how often the run was taken.
const processOf = (epoch) => { const life = data.lives.find((one) => one.epoch === epoch); return life ? life.process : epoch; };
const processes = data.lives.length ? data.lives[data.lives.length - 1].process : 0;
const asksNext = (life) => !life.broken && data.lives.some((one) => one.epoch === life.epoch + 1 && one.process === life.process);
// Of one that did not leave the run in order its last sign of life is known, and not when it ended.
const lifeEnd = (life) => asksNext(life) ? 'asked a person' : life.broken ? life.broken + ', last seen ' + clock(life.end) : lifeEnds[life.how];

const callsOf = new Map();
const callById = new Map();
for (const call of data.calls) {
  if (!callsOf.has(call.turn)) callsOf.set(call.turn, []);
  callsOf.get(call.turn).push(call);
  callById.set(call.id, call);
  // What a search looks through.
  call.hay = [call.tool, call.raw, call.id, call.status, call.verdict, call.effect, call.external, call.error, call.error_code, call.args, call.result && call.result.text, call.key].join('\n').toLowerCase();
}
for (const turn of data.turns) turn.hay = (turn.text + '\n' + turn.model + (isGateway ? '\ncall ' : '\nturn ') + turn.n).toLowerCase();

// --- The axis: time runs evenly where a process was at work; long waits between processes are folded.
const axis = (() => {
  const instants = [run.created];
  const see = (at) => { if (at !== null && at !== undefined) instants.push(at); };
  for (const life of data.lives) { see(life.start); see(life.end); }
  for (const turn of data.turns) { see(turn.recorded); see(turn.committed); turn.requests.forEach((r) => { see(r.start); see(r.end); }); }
  for (const request of data.open_requests) { see(request.start); see(request.end); }
  for (const call of data.calls) call.attempts.forEach((attempt) => { see(attempt.start); see(attempt.end); });
  for (const question of data.questions) { see(question.at); see(question.answered_at); }
  if (run.is_driven) see(data.written_at);
  let from = Infinity, to = -Infinity;
  for (const at of instants) { if (at < from) from = at; if (at > to) to = at; }
  if (to <= from) to = from + 1;
  const gaps = [];
  for (let i = 1; i < data.lives.length; i++) {
    const start = Math.max(data.lives[i - 1].end, from), end = Math.min(data.lives[i].start, to);
    if (end > start) gaps.push([start, end]);
  }
  const last = data.lives[data.lives.length - 1];
  if (last && to > last.end) gaps.push([last.end, to]);
  const waiting = gaps.reduce((sum, [a, b]) => sum + b - a, 0);
  const working = Math.max(to - from - waiting, 1);
  const fold = gaps.filter(([a, b]) => b - a > working * 0.04);
  const share = fold.length ? Math.min(0.035, 0.25 / fold.length) : 0;
  const folded = fold.reduce((sum, [a, b]) => sum + b - a, 0);
  const scale = (1 - share * fold.length) / Math.max(to - from - folded, 1);
  const pieces = [];
  let t = from, x = 0;
  for (const [a, b] of fold) {
    pieces.push([t, a, x, x + (a - t) * scale]); x += (a - t) * scale;
    pieces.push([a, b, x, x + share, true]); x += share; t = b;
  }
  pieces.push([t, to, x, 1]);
  const at = (time) => {
    for (const [t0, t1, x0, x1] of pieces) if (time <= t1) return t1 === t0 ? x0 : x0 + (Math.max(time, t0) - t0) / (t1 - t0) * (x1 - x0);
    return 1;
  };
  const back = (where) => {
    for (const [t0, t1, x0, x1] of pieces) if (where <= x1) return x1 === x0 ? t0 : t0 + (where - x0) / (x1 - x0) * (t1 - t0);
    return to;
  };
  return { from, to, at, back, folds: pieces.filter((piece) => piece[4]) };
})();
let view = [0, 1];
const inView = (x) => (x - view[0]) / (view[1] - view[0]);
const percent = (x) => (Math.max(0, Math.min(1, x)) * 100).toFixed(3) + '%';

// --- Head.
const elapsed = axis.to - run.created;
const held = run.held;
const kills = data.lives.filter((life) => life.how === KILLED).length;
const breaks = data.lives.filter((life) => life.broken).length;
const breakWords = () => [kills && many(kills, 'kill') + (run.is_left && breaks === kills ? '' : ' survived'), breaks > kills && (breaks - kills) + ' broken off otherwise'].filter(Boolean).join(', ') + (run.is_left ? ', not resumed yet' : '');
function header() {
  const pill = run.shown;
  const tone = run.is_left ? 'bad' : RUN_TONE[run.status];
  const theme = el('button', { class: 'quiet', type: 'button', on: { click: () => {
    const next = { '': 'light', light: 'dark', dark: '' }[root.dataset.theme || ''];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    theme.textContent = 'Theme: ' + (next || 'system');
  } } }, 'Theme: system');
  const counts = {};
  for (const call of data.calls) counts[call.status] = (counts[call.status] || 0) + 1;
  const failed = (counts.failed_definite || 0) + (counts.failed_reported || 0), doubt = (counts.unknown || 0) + (counts.running || 0);
  const repeated = data.calls.filter((call) => call.attempts.length > 1).length;
  // What the receipt of an earlier call answered was not carried out.
  const answered = data.calls.filter((call) => call.twin && call.status === 'succeeded').length;
  const tile = (name, value, small) => el('div', { class: 'tile' }, el('dt', null, name), el('dd', null, value, small && el('small', null, small)));
  const model = data.usage.models[0];
  append($('top'), [
    el('div', { class: 'brand' }, el('span', null, isGateway ? 'ua · session timeline' : 'ua · run timeline'), el('span', { class: 'grow' }), theme),
    el('div', { class: 'title' }, el('h1', { class: run.objective.length > 140 ? 'long' : '' }, run.objective), el('span', { class: 'pill big ' + tone }, pill)),
    el('div', { class: 'facts' },
      el('span', null, el('code', null, run.id)),
      el('span', null, stamp(run.created), ' → ', stamp(axis.to)),
      run.job_path && el('span', null, 'job ', el('code', null, run.job_path)),
      run.job_key && el('span', null, 'key ', el('code', null, run.job_key)),
      el('span', null, 'by ', run.entrypoint, run.host ? ' on ' + run.host : '')),
    run.detail && el('p', { class: 'reason' }, run.detail),
    run.next && el('p', { class: 'sub' }, run.status === 'waiting_for_human' && !run.is_left ? 'Once it is answered: ' : 'To continue it: ', el('span', { class: 'cmd' }, run.next)),
    el('dl', { class: 'tiles' },
      // A session has no process of its own whose work could be measured.
      !isGateway && tile('Time at work', span(held), elapsed > held * 1.02 + 1000 ? span(elapsed) + ' from start to end' : breaks ? '' : 'without a break'),
      tile('Processes', number(processes), breaks ? breakWords() : processes > 1 ? 'each ended normally' : 'never interrupted'),
      !isGateway && tile('Turns', number(data.totals.committed), data.totals.turns > data.totals.committed ? 'and one that is not committed' : many(data.steps.length, 'step')),
      tile('Tool calls', number(data.totals.calls), [number((counts.succeeded || 0) - answered) + ' ok', answered && answered + ' not repeated', failed && failed + ' failed', doubt && doubt + ' in doubt', counts.cancelled && counts.cancelled + ' not run', repeated && repeated + ' sent again'].filter(Boolean).join(' · ')),
      isGateway && tile('Requests', number(data.arrivals.length), number(data.arrivals.filter((one) => one.rule === 'new').length) + ' as new calls'),
      !isGateway && tile('Tokens', number(data.usage.tokens), number(data.usage.in) + ' in · ' + number(data.usage.out) + ' out'),
      !isGateway && tile('Cost', data.usage.cost.replace(/ \(.*\)$/, ''), 'requests: ' + data.usage.requests),
      !isGateway && tile('Model', model ? model.model : '–', model && (data.usage.models.length > 1 ? 'and ' + (data.usage.models.length - 1) + ' more' : model.provider))),
  ]);
}

// --- Open questions come first: they are why a run stands still.
function question(record, tools) {
  const answer = record.answer;
  const call = record.call_id && callById.get(record.call_id);
  return el('div', { class: 'ask', data: { question: record.question_id } },
    el('div', null, el('span', { class: 'pill ' + (record.status === 'open' ? 'wait' : 'idle') }, plainWord(record.kind)), ' ',
      el('span', { class: 'sub' }, stamp(record.at), ' · ', el('code', null, record.question_id), call && [' · about ', jump(call)])),
    el('pre', null, localTimes(record.text)),
    (record.known || []).map((fact) => el('p', { class: 'sub' }, el('b', null, fact.name), ': ', localTimes(fact.text))),
    record.ways ? record.ways.map((way) => el('div', null, el('span', { class: 'cmd' }, way.command), el('span', { class: 'sub' }, way.does))) : record.commands.map((command) => el('span', { class: 'cmd' }, command)),
    answer && el('p', { class: 'sub' }, el('b', null, answer.word), ' — ', answer.by, ', ', stamp(record.answered_at), ' (', span(record.answered_at - record.at), ' later)', answer.applied ? '' : ', not acted on yet',
      answer.proof && [' · reference ', el('code', null, answer.proof)], answer.text && ' · ' + answer.text),
    tools);
}
function attention() {
  const open = data.questions.filter((record) => record.status === 'open');
  if (!open.length) return;
  $('attention').hidden = false;
  append($('attention'), [el('div', { class: 'card' }, el('h2', null, many(open.length, 'question') + ' for a person'), open.map((record) => question(record)))]);
}
function jump(call) {
  return el('a', { href: '#' + call.id, on: { click: (event) => { event.preventDefault(); reveal(call.id); } } }, call.tool);
}

// --- Overview: one lane per kind of work.
const LANES = [['read_only', 'Reads'], ['local', 'Files'], ['memory', 'Memory'], ['external', 'Effects']];
function barClass(call, attempt) {
  if (attempt.outcome === 'lost') return 'b-lost';
  if (attempt.outcome === 'not_sent') return 'b-failed';
  const isLast = attempt.n === call.attempts[call.attempts.length - 1].n;
  if (isLast && isFailed(call)) return 'b-failed';
  if (!attempt.end) return call.status === 'running' || call.status === 'unknown' ? 'b-lost' : 'b-open';
  return 'b-' + call.class;
}
// A lost attempt ends, for the eye, with the process that sent it: only later somebody noticed.
function attemptEnd(attempt) {
  const life = data.lives.find((one) => one.epoch === attempt.epoch);
  const until = attempt.end === null || attempt.end === undefined ? axis.to : attempt.end;
  return life && (attempt.outcome === 'lost' || !attempt.end) ? Math.max(attempt.start, Math.min(until, life.end)) : until;
}
function lanes() {
  const found = [];
  const modelBars = [];
  const ask = (request) => modelBars.push([request.start, request.end || axis.to, request.status === 'actual' ? 'b-model' : request.status === 'baseline' || request.status === 'partial' ? 'b-lost' : 'b-open']);
  data.turns.forEach((turn) => turn.requests.forEach(ask));
  data.open_requests.forEach(ask);
  if (!isGateway) found.push(['Model', modelBars]);
  for (const [kind, name] of LANES) {
    const bars = [];
    for (const call of data.calls) if (call.class === kind) {
      for (const attempt of call.attempts) bars.push([attempt.start, attemptEnd(attempt), barClass(call, attempt)]);
      if (call.twin) bars.push([call.updated, call.updated, 'b-dedup']);
    }
    if (bars.length) found.push([name, bars]);
  }
  if (data.questions.length) found.push(['People', data.questions.map((q) => [q.at, q.answered_at || axis.to, 'b-people'])]);
  return found;
}
const SVG = 'http://www.w3.org/2000/svg';
function drawLane(bars) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 1000 20');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  // What is closer than a pixel is one bar, so that a long run draws no more than the screen has room for.
  const open = new Map();
  const flush = ([kind, [from, to]]) => {
    const rect = document.createElementNS(SVG, 'rect');
    rect.setAttribute('x', from.toFixed(2)); rect.setAttribute('width', Math.max(to - from, 2.2).toFixed(2));
    rect.setAttribute('y', '3'); rect.setAttribute('height', '14'); rect.setAttribute('rx', '1.2'); rect.setAttribute('class', kind);
    svg.append(rect);
  };
  const scaled = bars.map(([a, b, kind]) => [inView(axis.at(a)) * 1000, inView(axis.at(b)) * 1000, kind]).filter(([a, b]) => b >= 0 && a <= 1000);
  for (const [a, b, kind] of scaled.sort((p, q) => p[0] - q[0])) {
    const before = open.get(kind);
    if (before && a <= before[1] + 1) before[1] = Math.max(before[1], b);
    else { if (before) flush([kind, before]); open.set(kind, [a, Math.max(b, a + 1.5)]); }
  }
  for (const rest of open) flush(rest);
  return svg;
}
const allLanes = lanes();
function overview() {
  const box = $('overview');
  box.className = 'card';
  box.replaceChildren();
  const isZoomed = view[0] > 0 || view[1] < 1;
  const note = axis.folds.length ? 'Waits between processes are folded. Drag to zoom.' : 'Drag to zoom.';
  box.append(el('div', { class: 'head' }, el('h2', { id: 'overview-title' }, 'Time'), el('span', { class: 'note' }, note),
    isZoomed && el('button', { class: 'quiet', type: 'button', on: { click: () => zoom(0, 1) } }, 'Show all of it')));
  const chart = el('div', { class: 'chart' });
  const lifeLane = el('div', { class: 'lane life', role: 'group', 'aria-label': 'Processes' });
  for (const life of data.lives) {
    const a = inView(axis.at(life.start)), b = inView(axis.at(life.end));
    if (b < 0 || a > 1) continue;
    const title = 'Process ' + life.process + ' · ended: ' + lifeEnd(life) + ' · ' + when(life.start) + ' – ' + (life.broken ? 'at least ' : '') + clock(life.end) + ' · trace ' + (life.trace || '–');
    lifeLane.append(el('button', { type: 'button', title, 'aria-label': title + '. Zooms on it.', css: { left: percent(a), width: percent(Math.min(b, 1) - Math.max(a, 0)) }, on: { click: () => zoom(axis.at(life.start), axis.at(life.end)) } }, b - a > 0.12 ? 'process ' + life.process : b - a > 0.03 ? life.process : ''));
    if (life.broken && b <= 1) lifeLane.append(el('span', { class: 'kill', 'aria-hidden': 'true', css: { left: percent(b) } }, '✕'));
  }
  chart.append(el('span', { class: 'name' }, 'Processes'), lifeLane);
  for (const [name, bars] of allLanes) {
    const lane = el('div', { class: 'lane', role: 'img', 'aria-label': name + ': ' + many(bars.length, 'bar') });
    lane.append(drawLane(bars));
    chart.append(el('span', { class: 'name' }, name), lane);
  }
  const ticks = el('div', { class: 'ticks' });
  let said = '';
  const wanted = box.clientWidth < 640 ? 2 : 6, short = axis.back(view[1]) - axis.back(view[0]) < 20000;
  for (let i = 0; i <= wanted; i++) {
    const x = view[0] + (view[1] - view[0]) * i / wanted;
    // The length of a folded wait stands in the same line.
    if (axis.folds.some((fold) => Math.abs(inView((fold[2] + fold[3]) / 2) - i / wanted) < 0.45 / wanted)) continue;
    const time = axis.back(x);
    // Over midnight a time alone says too little; what was said already is not said again.
    const text = (day(axis.back(view[0])) === day(axis.back(view[1])) ? '' : day(time).slice(5) + ' ') + (short ? fine(time) : clock(time));
    if (text === said) continue;
    said = text;
    ticks.append(el('span', { class: i === 0 ? 'first' : i === wanted ? 'last' : '', css: { left: percent(i / wanted) } }, text));
  }
  chart.append(el('span', { class: 'name' }), ticks);
  const over = el('div', { class: 'over' });
  let labelled = -1;
  for (const [t0, t1, x0, x1] of axis.folds) {
    const a = inView(x0), b = inView(x1);
    if (b < 0 || a > 1) continue;
    const middle = (a + b) / 2;
    // Two lengths that lie on each other say neither; what has no room is told by its title.
    const hasRoom = labelled < 0 || (middle - labelled) * box.clientWidth > 84;
    if (hasRoom) labelled = middle;
    over.append(el('div', { class: 'gap' + (middle < 0.05 ? ' left' : middle > 0.95 ? ' right' : ''), title: 'no process for ' + span(t1 - t0), css: { left: percent(a), width: percent(Math.min(b, 1) - Math.max(a, 0)) } }, hasRoom ? el('span', null, span(t1 - t0)) : null));
  }
  const brush = el('div', { class: 'brush', hidden: true });
  over.append(brush);
  chart.append(over);
  let anchor = null;
  const place = (event) => { const area = over.getBoundingClientRect(); return Math.max(0, Math.min(1, (event.clientX - area.left) / area.width)); };
  chart.addEventListener('pointerdown', (event) => { if (event.button === 0 && event.clientX >= over.getBoundingClientRect().left) anchor = place(event); });
  chart.addEventListener('pointermove', (event) => {
    if (anchor === null) return;
    const here = place(event), a = Math.min(anchor, here), b = Math.max(anchor, here);
    if (b - a < 0.01) return;
    if (brush.hidden) { brush.hidden = false; chart.setPointerCapture(event.pointerId); }
    brush.style.setProperty('left', percent(a)); brush.style.setProperty('width', percent(b - a));
  });
  chart.addEventListener('pointerup', (event) => {
    const here = place(event), a = anchor;
    anchor = null;
    if (a === null || brush.hidden) return;
    const width = view[1] - view[0];
    zoom(view[0] + Math.min(a, here) * width, view[0] + Math.max(a, here) * width);
  });
  chart.addEventListener('pointercancel', () => { anchor = null; brush.hidden = true; });
  box.append(chart);
  const key = (kind, text) => el('span', null, el('i', { class: kind }), text);
  box.append(el('div', { class: 'legend' }, key('b-model', 'model'), LANES.filter(([kind]) => data.calls.some((call) => call.class === kind)).map(([kind, name]) => key('b-' + kind, name.toLowerCase())),
    data.questions.length ? key('b-people', 'waits for a person') : null, key('b-lost', 'outcome lost'), key('b-failed', 'failed'), data.calls.some((call) => call.twin) ? key('b-dedup', 'not repeated') : null,
    breaks ? el('span', null, el('b', { class: 'mark bad' }, '✕ '), [kills && 'killed', breaks > kills && 'broken off otherwise'].filter(Boolean).join(', or ')) : null));
}
function zoom(a, b) {
  const pad = (b - a) * 0.01, least = 1e-5;
  if (b - a < least) { a -= least; b += least; }
  view = a <= 0 && b >= 1 ? [0, 1] : [Math.max(0, a - pad), Math.min(1, b + pad)];
  overview();
  refresh();
}

// --- Outcome.
function outcome() {
  const cards = [];
  if (isGateway) {
    cards.push(el('div', { class: 'card', id: 'asked' }, el('h2', null, 'What clients asked for'), data.arrivals.length ? el('table', null,
      el('thead', null, el('tr', null, ['at', 'call', 'what it was', 'answer'].map((name) => el('th', { scope: 'col' }, name)))),
      el('tbody', null, data.arrivals.map((asked) => {
        const call = callById.get(asked.call);
        return el('tr', { data: { rule: asked.rule } }, el('td', null, stamp(asked.at)), el('td', null, call ? jump(call) : [asked.tool, ' ', el('code', null, asked.call.slice(-8))]), el('td', null, asked.words, asked.other && el('div', { class: 'sub' }, 'by session ', el('code', null, asked.other.slice(-8)))),
          el('td', null, asked.heard ? 'reached the client' : asked.answered ? 'written to the client' : call && call.class === 'read_only' ? '' : 'no delivery noted'));
      }))) : el('p', { class: 'sub' }, 'Nothing yet.')));
  } else if (data.conditions) {
    cards.push(el('div', { class: 'card', id: 'conditions' }, el('h2', null, 'Stop conditions'), data.conditions.length ? el('ul', { class: 'rows' }, data.conditions.map((condition) =>
      el('li', null, el('span', { class: 'mark ' + (condition.met ? 'ok' : 'bad') }, condition.met ? '✓' : '✕'),
        el('div', null, el('code', null, condition.condition), condition.needed !== condition.condition && el('div', { class: 'sub' }, condition.needed),
          condition.evidence.map((proof) => {
            const call = proof.kind === 'receipt' && callById.get(proof.id);
            return el('div', { class: 'sub' }, call ? ['receipt of ', jump(call)] : el('code', null, proof.id), proof.level && ' · ' + proof.level, proof.external_id && [' · id ', el('code', null, proof.external_id)], proof.sha256 && [' · sha256 ', el('code', { title: proof.sha256 }, proof.sha256.slice(0, 16))]);
          }),
          !condition.met && condition.missing && el('div', { class: 'sub' }, condition.missing))))) : el('p', { class: 'sub' }, 'The job has none: it ends when the model asks for nothing more.')));
  } else {
    cards.push(el('div', { class: 'card' }, el('h2', null, 'Stop conditions'), el('p', { class: 'sub' }, 'Not checked: the workspace of this run is not on the machine that wrote this page.')));
  }
  if (data.artifacts) {
    cards.push(el('div', { class: 'card' }, el('h2', null, 'Files'), data.artifacts.length ? el('table', null,
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'path'), el('th', { scope: 'col' }, 'sha256'), el('th', { class: 'num', scope: 'col' }, 'size'))),
      el('tbody', null, data.artifacts.map((file) => el('tr', null, el('td', null, el(file.path === run.main_artifact ? 'b' : 'span', null, breakable(file.path))), el('td', { class: 'digest' }, el('code', { title: file.sha256 }, file.sha256.slice(0, 12))), el('td', { class: 'num' }, bytes(file.bytes)))))) : el('p', { class: 'sub' }, 'No tool made a file.'),
      data.left_out.files ? el('p', { class: 'notice' }, many(data.left_out.files, 'more file') + ' left out.') : null));
  }
  const effects = data.calls.filter((call) => isEffect(call) && call.class !== 'read_only');
  const below = data.sub_agents || [];
  if (effects.length || below.length) {
    const shown = effects.slice(-60);
    cards.push(el('div', { class: 'card' }, el('h2', null, 'What it did outside'), shown.length < effects.length ? el('p', { class: 'sub' }, 'The newest ' + shown.length + ' of ' + number(effects.length) + '.') : null,
      el('ul', { class: 'rows' }, shown.map((call) => el('li', null, el('span', { class: 'mark ' + (CALL_TONE[call.status] === 'ok' ? 'ok' : isFailed(call) ? 'bad' : 'wait') }, GLYPH[call.status]),
        el('div', null, jump(call), call.effect && [' ', el('span', { class: 'tag' }, call.effect)], el('div', { class: 'sub' }, call.verdict, call.evidence && ' · ' + call.evidence, call.external && [' · id ', el('code', null, call.external)]))))),
      below.map((child) => [el('p', { class: 'sub' }, 'By the sub-agent “' + child.about + '” (', el('code', null, child.run_id), ')'),
        el('ul', { class: 'rows' }, child.effects.map((effect) => el('li', null, el('span', { class: 'mark ' + (effect.happened === 'done' ? 'ok' : 'wait') }, '↳'), el('div', null, el('code', { title: effect.call_id }, effect.tool), el('div', { class: 'sub' }, effect.happened, effect.external && [' · id ', el('code', null, effect.external)])))))])));
  }
  const closed = data.questions.filter((record) => record.status !== 'open');
  if (closed.length) cards.push(el('div', { class: 'card' }, el('h2', null, 'Questions answered'), closed.map((record) => question(record))));
  if (data.lives.length > 1 || breaks) {
    cards.push(el('div', { class: 'card' }, el('h2', null, 'Processes'), el('table', null,
      el('thead', null, el('tr', null, ['', 'started', 'ran for', 'ended', 'trace'].map((name) => el('th', { scope: 'col', class: name === 'trace' ? 'extra' : null }, name)))),
      el('tbody', { id: 'lives' }, data.lives.map((life) => el('tr', { data: { epoch: life.epoch } }, el('td', null, life.process), el('td', null, stamp(life.start)), el('td', { class: 'whole', title: life.broken ? 'at least: when it ended nobody wrote down' : null }, span(life.end - life.start)), el('td', { title: lifeEnd(life) }, el('span', { class: 'tag ' + (life.broken ? 'bad' : life.how === 'in_order' ? 'ok' : '') }, life.broken || lifeEnd(life))), el('td', { class: 'extra' }, el('code', { title: life.trace }, (life.trace || '–').slice(0, 16)))))))));
  }
  const limited = data.budgets.filter((line) => line.share !== null && line.share !== undefined);
  if (limited.length && !isGateway) cards.push(el('div', { class: 'card' }, el('h2', null, 'Budgets'), el('dl', { class: 'grid' }, limited.map((line) => [el('dt', null, line.name === 'max_wallclock_minutes' ? 'time at work' : plainWord(line.name.replace(/^max_/, ''))), el('dd', null, line.name === 'max_wallclock_minutes' ? line.words.replace(/^.* of /, span(held) + ' of ') : line.words, el('div', { class: 'meter' + (line.is_reached ? ' full' : '') }, el('i', { css: { width: (line.share / 10) + '%' } })))]))));
  if (data.lineage.length || run.parent) {
    cards.push(el('div', { class: 'card' }, el('h2', null, 'Lineage'), el('ul', { class: 'rows' },
      run.parent && !data.lineage.some((other) => other.run_id === run.parent) ? el('li', null, el('span'), el('div', null, 'from ', el('code', null, run.parent))) : null,
      data.lineage.map((other) => el('li', null, el('span', { class: 'mark' }, other.is_child ? '↳' : other.run_id === run.parent ? '↰' : '·'), el('div', null, el('code', null, other.run_id), ' ', el('span', { class: 'pill ' + (RUN_TONE[other.status] || '') }, plainWord(other.status)),
        el('div', { class: 'sub' }, other.run_id === run.parent ? 'this run came from it' + (run.forked_at === null ? '' : ', after its turn ' + run.forked_at) : other.is_child ? 'came from this run' : 'of the same lineage', ' · ', many(other.turn_index, 'turn'))))))));
  }
  if (data.overrides.length) cards.push(el('div', { class: 'card' }, el('h2', null, 'Changed by people'), el('ul', { class: 'rows' }, data.overrides.map((change) => el('li', null, el('span'), el('div', null, plainWord(change.kind) + ' ', el('code', null, change.component), el('div', { class: 'sub' }, change.by, ' · ', stamp(change.at))))))));
  if (run.output) cards.push(el('div', { class: 'card' }, el('h2', null, 'The model’s final message'), el('p', { class: 'sub' }, 'Not verified: what it claims is no evidence.'), el('pre', null, run.output)));
  // Two columns of about the same height.
  const columns = [el('div'), el('div')];
  append($('outcome'), [el('div', { class: 'pair' }, columns)]);
  for (const card of cards) columns[columns[0].offsetHeight <= columns[1].offsetHeight ? 0 : 1].append(card);
}

// --- The turns.
const filters = {
  all: ['All', () => true],
  effects: ['Effects', isEffect],
  failed: ['Failed', isFailed],
  lost: ['In doubt once', (call) => isDoubt(call) || wasLost(call)],
  repeated: ['Repeated', (call) => call.attempts.length > 1],
  twins: ['Not repeated', (call) => Boolean(call.twin)],
  people: ['Asked about', (call) => Boolean(call.question) || call.approval],
  notrun: ['Not run', (call) => call.status === 'cancelled' || call.status === 'prepared'],
};
let filter = 'all', words = '', onlyTool = '';
const expanded = new Set(), opened = new Set();
const PAGE = 250;
let page = PAGE, first = 0;
const small = data.calls.length <= 250 && data.turns.length <= 250;
if (small) data.turns.forEach((turn) => expanded.add(turn.n));
const isFiltering = () => filter !== 'all' || words !== '' || onlyTool !== '';

function matching() {
  const test = filters[filter][1];
  const [from, to] = [axis.back(view[0]), axis.back(view[1])];
  const isZoomed = view[0] > 0 || view[1] < 1;
  const found = [];
  for (const turn of data.turns) {
    const start = Math.min(turn.recorded, ...turn.requests.map((request) => request.start));
    const all = callsOf.get(turn.n) || [];
    if (isZoomed && (start > to || (turn.committed || Math.max(turn.recorded, ...all.map((call) => call.updated))) < from)) continue;
    const saysIt = words !== '' && filter === 'all' && onlyTool === '' && turn.hay.includes(words);
    const calls = all.filter((call) => test(call) && (onlyTool === '' || call.tool === onlyTool) && (words === '' || saysIt || call.hay.includes(words)));
    if (!isFiltering() || calls.length || saysIt) found.push([turn, calls]);
  }
  return found;
}

function bar() {
  const tools = [...new Set(data.calls.map((call) => call.tool))].sort();
  const search = el('input', { type: 'search', id: 'search', placeholder: 'Search tools, arguments, results, ids', 'aria-label': 'Search the calls', autocomplete: 'off', spellcheck: 'false' });
  let timer = 0;
  search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(() => { words = search.value.trim().toLowerCase(); anew(); }, 120); });
  const select = el('select', { 'aria-label': 'Only one tool', on: { change: () => { onlyTool = select.value; anew(); } } }, el('option', { value: '' }, 'All tools'), tools.map((tool) => el('option', { value: tool }, tool)));
  const chips = el('div', { class: 'chips', role: 'group', 'aria-label': 'Only some of the calls' });
  for (const [name, [label, test]] of Object.entries(filters)) {
    const count = data.calls.filter(test).length;
    if (!count && name !== 'all') continue;
    chips.append(el('button', { type: 'button', 'aria-pressed': String(name === filter), data: { filter: name }, on: { click: () => {
      filter = name;
      chips.querySelectorAll('button').forEach((chip) => chip.setAttribute('aria-pressed', String(chip.dataset.filter === name)));
      anew();
    } } }, label, ' ', el('b', null, number(count))));
  }
  const fold = el('button', { type: 'button', class: 'quiet', id: 'fold' }, small ? 'Fold all' : 'Unfold all');
  fold.addEventListener('click', () => {
    const unfold = fold.textContent === 'Unfold all';
    expanded.clear();
    if (unfold) data.turns.forEach((turn) => expanded.add(turn.n));
    fold.textContent = unfold ? 'Fold all' : 'Unfold all';
    refresh();
  });
  return el('div', { class: 'bar' }, el('div', { class: 'line' }, el('h2', { id: 'turns-title' }, isGateway ? 'Calls' : 'Turns'), search, select, fold, el('span', { class: 'count', id: 'count', 'aria-live': 'polite' })), el('div', { class: 'line' }, chips));
}

function tags(call) {
  const out = [];
  const tag = (text, tone, title) => out.push(el('span', { class: 'tag ' + (tone || ''), title }, text));
  if (call.attempts.length > 1) tag('×' + call.attempts.length, 'doubt', call.attempts.length + ' attempts');
  if (call.twin) tag('not repeated', 'wait', 'answered by the receipt of ' + call.twin);
  if (isDoubt(call)) tag(call.resolution === 'skipped' ? 'doubt, skipped' : 'in doubt', 'doubt');
  else if (wasLost(call)) tag('was in doubt', 'doubt', 'an attempt was sent and its answer was lost');
  if (call.replay) tag('resume: ' + plainWord(call.replay), 'wait', 'what a resume did with it');
  if (call.approval) tag('approval', 'wait', 'a person approves each call of this tool');
  if (call.status === 'cancelled') tag(plainWord(call.resolution || 'not run'));
  if (call.evidence && isEffect(call)) tag(call.evidence, 'ok', 'evidence level of its receipt');
  return out;
}
function took(call) {
  if (!call.attempts.length) return '';
  const last = call.attempts[call.attempts.length - 1];
  return last.end ? span(attemptEnd(last) - last.start) : '';
}
function track(bars, rules) {
  const box = el('div', { class: 'track', 'aria-hidden': 'true' });
  for (const [start, end, kind] of bars) {
    const a = inView(axis.at(start)), b = inView(axis.at(end));
    if (b < 0 || a > 1) continue;
    box.append(el('i', { class: kind, css: { left: percent(Math.min(a, 0.985)), width: percent(Math.min(b, 1) - Math.max(a, 0)) } }));
  }
  for (const at of rules) { const x = inView(axis.at(at)); if (x >= 0 && x <= 1) box.append(el('i', { class: 'rule', css: { left: percent(x) } })); }
  return box;
}
const brokenAt = data.lives.filter((life) => life.broken).map((life) => life.end);
function brief(call) {
  const flat = call.args.replace(/\s+/g, ' ').replace(/^\{ ?/, '').replace(/ ?\}$/, '').replace(/"([\w.-]+)": /g, '$1: ');
  return flat.length > 160 ? flat.slice(0, 159) + '…' : flat;
}

function callRow(call) {
  const isOpen = opened.has(call.id);
  const bars = call.attempts.map((attempt) => [attempt.start, attemptEnd(attempt), barClass(call, attempt)]);
  if (call.twin) bars.push([call.updated, call.updated, 'b-dedup']);
  const label = call.place + ' · ' + call.tool + ', ' + call.word + ', ' + call.verdict;
  const node = el('div', { class: 'call', id: call.id, data: { call: call.id, status: call.status } });
  const row = el('button', { type: 'button', class: 'row', 'aria-expanded': String(isOpen), 'aria-label': label, on: { click: () => {
    const open = !opened.has(call.id);
    if (open) { opened.add(call.id); node.append(details(call)); } else { opened.delete(call.id); node.lastChild.remove(); }
    row.setAttribute('aria-expanded', String(open));
  } } },
    el('span', { class: 'tri' }, '▶'),
    el('span', { class: 'glyph ' + CALL_TONE[call.status] }, call.twin ? '=' : GLYPH[call.status]),
    el('span', { class: 'tool', title: call.raw }, el('i', { class: 'b-' + call.class, title: plainWord(call.class) }), call.tool),
    el('span', { class: 'brief' }, brief(call)),
    el('span', { class: 'tags' }, tags(call)),
    el('span', { class: 'took' }, took(call)),
    track(bars, brokenAt));
  node.append(row);
  if (isOpen) node.append(details(call));
  return node;
}

function details(call) {
  const pairs = [];
  const pair = (name, ...value) => { if (value.some((part) => part !== null && part !== undefined && part !== '' && part !== false)) pairs.push(el('dt', null, name), el('dd', null, value)); };
  pair('verdict', el('b', null, call.verdict));
  pair('call', el('code', null, call.id), ' · ' + call.place);
  pair('tool', el('code', null, call.raw));
  pair('class', plainWord(call.class), ' · rule ', el('code', null, call.rule), ' · when in doubt: ' + plainWord(call.on_unknown));
  pair('effect', call.effect);
  if (call.external) pair('the other side’s id', el('code', null, call.external));
  pair('evidence', call.evidence);
  if (call.twin) pair('answered by', callById.has(call.twin) ? jump(callById.get(call.twin)) : el('code', null, call.twin));
  pair('settled by', plainWord(call.resolution));
  pair('resume', plainWord(call.replay));
  if (call.error || call.error_code) pair('error', call.error_code && el('code', null, call.error_code), ' ', call.error);
  if (call.key) pair('idempotency key', el('code', null, call.key));
  if (call.scope) pair('scope', el('code', null, call.scope));
  const box = el('div', { class: 'details' }, el('dl', { class: 'grid' }, pairs));
  if (call.attempts.length) {
    box.append(el('div', null, el('h4', null, 'Attempts'), el('table', null,
      el('thead', null, el('tr', null, ['', 'sent', 'took', 'outcome', 'process', 'receipt'].map((name) => el('th', { scope: 'col' }, name)))),
      el('tbody', null, call.attempts.map((attempt) => {
        const receipts = call.receipts.filter((receipt) => receipt.attempt === attempt.n);
        return el('tr', { data: { attempt: attempt.n } }, el('td', null, attempt.n), el('td', null, day(attempt.start) + ' ' + fine(attempt.start)), el('td', null, attempt.end ? span(attempt.end - attempt.start) : '–'),
          el('td', null, el('span', { class: 'tag ' + ({ replied: 'ok', lost: 'doubt', not_sent: 'bad' }[attempt.outcome] || '') }, plainWord(attempt.outcome || 'no answer')), attempt.detail && el('div', { class: 'sub' }, attempt.detail)),
          el('td', null, processOf(attempt.epoch), attempt.server && el('div', { class: 'sub' }, attempt.server)),
          el('td', null, receipts.length ? receipts.map((receipt) => el('div', { data: { receipt: receipt.sha256 } }, el('span', { class: 'tag ok' }, receipt.evidence), ' ', receipt.status ? plainWord(receipt.status) : 'not interpreted', receipt.external && [' · id ', el('code', null, receipt.external)], el('div', { class: 'sub' }, 'sha256 ', el('code', { title: receipt.sha256 }, receipt.sha256.slice(0, 16))))) : '–'));
      })))));
  }
  if (call.events.length) box.append(el('div', null, el('h4', null, 'History'), el('p', { class: 'sub' }, call.events.map(([at, from, to, epoch], index) => [index ? ' → ' : '', el('span', { title: fine(at) + ', process ' + processOf(epoch) }, plainWord(to) + ' ' + clock(at))]))));
  const asked = data.questions.find((record) => record.call_id === call.id);
  if (asked) box.append(el('div', null, el('h4', null, 'Question'), question(asked)));
  const pre = (title, text, isError) => el('div', null, el('h4', null, title), el('pre', { class: isError ? 'is-error' : '', tabindex: '0' }, text));
  box.append(el('div', { class: 'two' }, pre('Arguments', call.args), call.result ? pre(call.twin ? 'Result, of the earlier call' : 'Result', call.result.text, call.result.is_error) : el('div', null, el('h4', null, 'Result'), el('p', { class: 'sub' }, 'No receipt.'))));
  if (call.result && call.result.blob_bytes) box.append(el('p', { class: 'sub' }, 'The whole result has ' + bytes(call.result.blob_bytes) + ': ', el('span', { class: 'cmd' }, 'ua calls show ' + call.id + ' --full')));
  return box;
}

function turnNode(turn, calls, isForced) {
  const isOpen = isForced || expanded.has(turn.n);
  const all = callsOf.get(turn.n) || [];
  const bars = turn.requests.map((request) => [request.start, request.end || turn.recorded, request.status === 'baseline' || request.status === 'partial' ? 'b-lost' : 'b-model']);
  for (const call of all.slice(0, 60)) for (const attempt of call.attempts) bars.push([attempt.start, attemptEnd(attempt), barClass(call, attempt)]);
  const tokens = turn.requests.reduce((sum, request) => sum + request.in + request.out, 0);
  const costs = turn.requests.map((request) => request.cost).filter(Boolean);
  const end = turn.committed || turn.recorded, start = Math.min(turn.recorded, ...turn.requests.map((request) => request.start));
  const said = turn.text.split('\n')[0] || all.map((call) => call.tool).join(', ') || (turn.committed ? '' : 'not committed');
  const node = el('article', { class: 'turn', id: 'turn-' + turn.n, data: { turn: turn.n } });
  const body = () => {
    const notes = data.notes.filter((note) => note.turn === turn.n);
    return el('div', { class: 'body' },
      // A short line is in the heading already.
      (turn.text.length > 90 || turn.text.includes('\n')) && el('p', { class: 'words' }, turn.text),
      calls.map(callRow),
      !turn.committed && el('p', { class: 'words note' }, 'This turn is recorded and not committed.'),
      notes.map((note) => el('details', { class: 'words note' }, el('summary', null, el('b', null, note.origin === 'resume' ? 'After a resume, the model was told' : 'The runner told the model'), ' · ' + clock(note.at)), el('pre', null, note.text))));
  };
  const fold = el('button', { type: 'button', class: 'fold', 'aria-expanded': String(isOpen), on: { click: () => {
    const open = node.children.length === 1;
    if (open) { expanded.add(turn.n); node.append(body()); } else { expanded.delete(turn.n); node.lastChild.remove(); }
    fold.setAttribute('aria-expanded', String(open));
  } } },
    el('span', { class: 'tri' }, '▶'), el('span', { class: 'n' }, (isGateway ? 'Call ' : 'Turn ') + turn.n), el('span', { class: 'said' }, said),
    el('span', { class: 'meta' }, [calls.length !== all.length ? calls.length + ' of ' + many(all.length, 'call') : all.length ? many(all.length, 'call') : 'no calls', number(tokens) + ' tok', costs.length === 1 ? costs[0] : '', span(end - start)].filter(Boolean).join(' · ')),
    track(bars, brokenAt));
  node.append(el('h3', null, fold));
  if (isOpen) node.append(body());
  return node;
}

let list = null;
function anew() { page = PAGE; first = 0; refresh(); }
function refresh() {
  const found = matching();
  if (first >= found.length) first = 0;
  const shown = found.slice(first, first + page);
  const calls = found.reduce((sum, [, some]) => sum + some.length, 0);
  const nodes = [];
  if (first) nodes.push(el('div', { class: 'more' }, el('button', { type: 'button', class: 'quiet', on: { click: () => { page += first; first = 0; refresh(); } } }, 'Show the ' + many(first, 'earlier turn'))));
  let step = null, epoch = null, rows = 0;
  for (const [turn, some] of shown) {
    const its = data.steps.find((one) => turn.n >= one.first && (one.last === null || turn.n <= one.last));
    if (its && its !== step && data.steps.length > 1) nodes.push(el('div', { class: 'split step' }, 'Step ' + its.index + ' · ' + its.phase + ' · ' + plainWord(its.status)));
    step = its || step;
    if (epoch !== null && turn.epoch > epoch) for (let number = epoch; number < turn.epoch; number++) nodes.push(boundary(number));
    epoch = turn.epoch;
    const isForced = isFiltering() && rows < 400;
    if (isForced || expanded.has(turn.n)) rows += some.length;
    nodes.push(turnNode(turn, some, isForced));
    // A process that took the run inside this turn: it finished the turn another one began.
    const finishers = (callsOf.get(turn.n) || []).flatMap((call) => call.attempts.map((attempt) => attempt.epoch));
    const newest = Math.max(epoch, ...finishers);
    if (newest > epoch && !isFiltering()) {
      for (let number = epoch; number < newest; number++) nodes.push(boundary(number, turn.n));
      epoch = newest;
    }
  }
  if (!found.length) nodes.push(el('p', { class: 'empty' }, data.turns.length ? 'Nothing matches.' : isGateway ? 'No calls yet.' : 'No turn was recorded yet.'));
  if (!isFiltering() && view[0] <= 0 && view[1] >= 1 && shown.length === found.length && epoch !== null) for (let number = epoch; number < run.epoch; number++) nodes.push(boundary(number));
  const after = found.length - first - shown.length;
  if (after > 0) {
    nodes.push(el('div', { class: 'more' },
      el('button', { type: 'button', class: 'quiet', on: { click: () => { page += PAGE; refresh(); } } }, 'Show ' + many(Math.min(PAGE, after), 'more turn')),
      el('button', { type: 'button', class: 'quiet', on: { click: () => { page = Infinity; refresh(); } } }, 'Show all ' + number(after))));
  }
  list.replaceChildren(...nodes);
  $('count').textContent = (isGateway ? '' : many(found.length, 'turn') + ' · ') + many(calls, 'call');
  root.dataset.turnsShown = String(shown.length);
}
function boundary(number, inside) {
  const before = data.lives.find((life) => life.epoch === number), after = data.lives.find((life) => life.epoch === number + 1);
  if (!before || !after) return el('span', { hidden: true });
  const wait = span(after.start - before.end);
  const name = 'Process ' + before.process;
  const what = before.process === after.process
    ? name + ' asked a person · it continued ' + wait + ' later'
    : before.broken
      ? name + ' ' + before.broken + ' · process ' + after.process + ' took over ' + wait + ' after its last sign of life'
      : name + ' ended · ' + wait + ' later process ' + after.process + ' took over';
  return el('div', { class: 'split' + (before.broken ? ' kill-line' : ''), data: { boundary: number } }, what + (inside ? ' and finished turn ' + inside : ''));
}

function reveal(id) {
  const call = callById.get(id);
  if (!call) return;
  if (!$(id)) {
    filter = 'all'; words = ''; onlyTool = ''; view = [0, 1];
    expanded.add(call.turn);
    const at = data.turns.findIndex((turn) => turn.n === call.turn);
    // Only what is around it: what came before may be thousands of turns.
    if (at >= PAGE) { first = at - 20; page = PAGE; } else { first = 0; }
    $('search').value = '';
    overview();
    refresh();
  }
  const node = $(id);
  if (!node) return;
  document.querySelectorAll('.is-target').forEach((other) => other.classList.remove('is-target'));
  node.classList.add('is-target');
  if (!opened.has(id)) node.querySelector('.row').click();
  node.querySelector('.row').focus({ preventScroll: true });
  node.scrollIntoView({ block: 'start' });
}

function foot() {
  const left = data.left_out;
  const cuts = [];
  if (left.turns || left.calls) cuts.push((isGateway ? 'The oldest calls of the session (' + number(left.calls) + ')' : many(left.turns, 'turn') + ' and ' + many(left.calls, 'call') + ' from the middle of the run') + ' are left out of this page; ua calls list --run ' + run.id + ' has them.');
  append($('foot'), [
    cuts.map((cut) => el('p', { class: 'notice', id: 'left-out' }, cut)),
    el('p', null, 'Texts are cut at ' + number(left.text_limit) + ' characters; the database has all of them. Times are those of this browser.'),
    el('p', null, 'Written by ' + data.program + ' on ' + when(data.written_at) + ' from stored records. ', el('kbd', null, '/'), ' search · ', el('kbd', null, 'j'), ' ', el('kbd', null, 'k'), (isGateway ? ' next and previous call · ' : ' next and previous turn · '), el('kbd', null, 'Enter'), ' unfold · ', el('kbd', null, 'Esc'), ' clear'),
  ]);
}
document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof Element && event.target.matches('input, select, textarea');
  if (event.key === 'Escape') {
    words = ''; onlyTool = ''; filter = 'all'; $('search').value = ''; document.querySelector('.bar select').value = '';
    document.querySelectorAll('.chips button').forEach((chip) => chip.setAttribute('aria-pressed', String(chip.dataset.filter === 'all')));
    zoom(0, 1);
    if (isTyping) event.target.blur();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') { event.preventDefault(); $('search').focus(); }
  if (event.key === 'j' || event.key === 'k') {
    const folds = [...document.querySelectorAll('.fold')];
    const here = document.activeElement ? document.activeElement.closest('.turn') : null;
    const at = folds.findIndex((fold) => here && here.contains(fold));
    const next = folds[Math.max(0, Math.min(folds.length - 1, at + (event.key === 'j' ? 1 : at < 0 ? 1 : -1)))];
    if (next) { next.focus(); next.scrollIntoView({ block: 'center' }); }
  }
});
addEventListener('beforeprint', () => { if ((page !== Infinity || first) && data.turns.length <= 2000) { page = Infinity; first = 0; refresh(); } });
addEventListener('hashchange', () => reveal(location.hash.slice(1)));

header();
attention();
overview();
outcome();
list = el('div', { id: 'list' });
append($('turns'), [bar(), list]);
refresh();
foot();
reveal(location.hash.slice(1));
root.dataset.ready = 'true';
