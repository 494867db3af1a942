// Browsers refuse a Worker to a page that was opened from a file. The site's search then runs its
// worker's script in a hidden frame, which answers the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.#hand(this, data);
      this.post = (data) => this.#hand(inside, data);
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href).href;
      this.ready = new Promise((loaded, failed) => {
        script.onload = loaded;
        script.onerror = failed;
      });
      this.ready.catch((error) => this.dispatchEvent(new ErrorEvent("error", { error })));
      frame.contentDocument.body.appendChild(script);
    }

    postMessage(data) {
      this.ready.then(() => this.post(data), () => undefined);
    }

    terminate() {
      this.post = () => undefined;
    }

    #hand(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target === this && typeof this.onmessage === "function") this.onmessage(event);
    }
  };
}
